"""The TVM tracker as a process, for tests that speak to a server with TVM's own client: no farm has one.

Prints one JSON line, ``{"host": ..., "port": ...}``, as soon as it listens. TVM's own entry point
(``tvm.exec.rpc_tracker``) starts a second process that outlives a killed parent, cannot take any free port, and never
notices a device that lost its power; here the same tracker runs in this very process.

The tracker knows no authentication: bind it to loopback or a private network.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

_BACKLOG = 128
_KEEPALIVE_IDLE_SEC = 15
_KEEPALIVE_INTERVAL_SEC = 5
_KEEPALIVE_PROBES = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="Run the TVM tracker.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on; 0 takes a free port (default)"
    )
    parser.add_argument("--with-stdin", action="store_true", help="end when standard input ends")
    arguments = parser.parse_args(argv)
    # There is nothing to clean up. The handler is needed because PID 1 of a container has no default action.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    if arguments.with_stdin:
        threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    try:
        listener = listen(arguments.host, arguments.port)
    except OSError as error:
        print(f"cannot listen on {arguments.host}:{arguments.port}: {error}", file=sys.stderr)
        return 1
    # Before the seconds of importing TVM: connections wait in the backlog meanwhile.
    print(json.dumps({"host": arguments.host, "port": listener.getsockname()[1]}), flush=True)
    from tvm.rpc import tracker

    tracker._tracker_server(listener, tracker.base.random_key("tracker"))
    return 0


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket whose connections notice a peer that vanished."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit these.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SEC),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SEC),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    listener.bind((host, port))
    listener.listen(_BACKLOG)
    return listener


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
