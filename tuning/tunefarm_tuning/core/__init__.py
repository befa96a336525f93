"""The base of every room: errors, outcomes, cancellation, untrusted text, latencies. Imports nothing of the engine.

- How work ends: `errors`, `outcome`, `cancellation`; what it spent its time on: `spans`.
- Measurements: `latency`, `ratio`.
- Files and texts: `output_file`, `kept_files`, `array_file`; `json_fields`, `base64url`, `untrusted_text`.
"""
