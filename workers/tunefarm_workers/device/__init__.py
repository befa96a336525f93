"""The device agent: offers one machine to the farm as a device.

The agent registers the machine with the API, sends heartbeats, and owns an RPC server (`hardened_server`) that the
farm's workers measure through. Imports httpx, psutil and (in the server process) TVM; no web framework, no Celery, no SQL.

The process (`__main__`) reads its `settings`, chooses devices (`gpu.devices`) and runs an `agent`, or a `fleet` with an agent for each. An agent
has its key by `enrolment`, and talks to the API (`api_client`) in its `registration`, with the `description` of the machine, its `vitals` and
what `gpu_watch` says. `rpc.keeper` keeps the server alive, `tunnel` connects it with the gateway. `trim` makes room on a small board.
"""

from __future__ import annotations
