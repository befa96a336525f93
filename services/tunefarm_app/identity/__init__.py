"""What API, gateway, workers and devices know each other by: certificates of the farm's own authority, and tickets of leases.

`authority` makes the certificates. `tickets` open sessions, `receipts` say which device one was with; both are `tokens`. `signing` has the
key of the farm's results, `statements` what is signed with it.
"""
