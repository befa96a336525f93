"""The base of every room: errors, outcomes, cancellation, untrusted text, latencies. Imports nothing of the engine."""
