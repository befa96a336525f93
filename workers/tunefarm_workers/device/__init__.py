"""The device agent: offers one machine to the farm as a device.

The agent registers the machine with the API, sends heartbeats, and owns an RPC server (`hardened_server`) that the
farm's workers measure through. Imports httpx, psutil and (in the server process) TVM; no web framework, no Celery, no SQL.
"""

from __future__ import annotations
