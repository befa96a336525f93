"""What every room stands on: errors, outcomes, cancellation, untrusted text, latencies. Imports nothing of the engine."""
