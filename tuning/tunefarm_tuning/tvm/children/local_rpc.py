"""Child process of `testing.local_rpc`: runs a tracker and a server, which end with it.

Handlers:

- `start`: ``key``, ``server_command`` (null for TVM's own server), ``ready_timeout_sec`` -> the tracker's port, once it knows the server.
- `signal_server`: ``signal`` (a name, ``"SIGSTOP"``) -> null.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
from tvm import rpc
from tvm.rpc.tracker import Tracker

from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.process import Handlers

_STOCK = ["-m", "tvm.exec.rpc_server", "--host", "127.0.0.1", "--tracker", "{tracker}", "--key", "{key}"]
_STOCK_PORTS = ["--port", "19090", "--port-end", "19999"]

_tracker: Any = None
_server: subprocess.Popen[bytes] | None = None


def start(params: dict[str, Any]) -> int:
    """Start the tracker and the server; return the tracker's port once it knows the server.

    Raises:
        TransientError: If the server does not come up in time.
    """
    global _tracker, _server
    _tracker = Tracker("127.0.0.1", port=19000, port_end=19999, silent=True)
    command = params["server_command"] or [sys.executable, *_STOCK, *_STOCK_PORTS]
    filled = [
        word.replace("{tracker}", f"127.0.0.1:{_tracker.port}").replace("{key}", params["key"])
        for word in command
    ]
    _server = subprocess.Popen(filled, stdin=subprocess.PIPE)
    until = time.monotonic() + params["ready_timeout_sec"]
    connection = rpc.connect_tracker("127.0.0.1", _tracker.port)
    while connection.summary()["queue_info"].get(params["key"], {}).get("free", 0) < 1:
        if time.monotonic() > until or _server.poll() is not None:
            raise TransientError("the server did not come up")
        time.sleep(0.05)
    return int(_tracker.port)


def signal_server(params: dict[str, Any]) -> None:
    """Send a signal to the server and its descendants."""
    assert _server is not None
    root = psutil.Process(_server.pid)
    for process in [*root.children(recursive=True), root]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(getattr(signal, params["signal"]))


HANDLERS: Handlers = {"start": start, "signal_server": signal_server}
