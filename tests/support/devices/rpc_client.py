"""A worker's side of a device: request a session from the tracker, and call kernels.

Also a script, for a process that can be killed, and a child's module, for one that stays and can be given up (`steady`).
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

from tunefarm_tuning.process import ChildProcess

PATIENCE_SEC = 90.0


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SEC)


class Client:
    """Calls kernels of a library in sessions with a time limit; what must not last for ever, in the process of `steady`."""

    def __init__(
        self, tracker_port: int, kernels: Path, key: str, caller: ChildProcess | None = None
    ) -> None:
        self.tracker_port = tracker_port
        self.kernels = kernels
        self.key = key
        self._caller = caller

    def session(self, timeout_sec: int = 60) -> Any:
        """Open a session; the tracker's queue has no time limit of its own, so neither does this."""
        from tvm import rpc

        return rpc.connect_tracker("127.0.0.1", self.tracker_port).request(
            self.key, session_timeout=timeout_sec
        )

    def call(self, kernel: str, timeout_sec: int = 60) -> None:
        """Call one kernel in a session of its own."""
        session = self.session(timeout_sec)
        session.upload(str(self.kernels))
        session.load_module("kernels.so")[kernel]()

    def assert_serves(self, within_sec: float = PATIENCE_SEC) -> None:
        """A good kernel runs, within the time, in a process that can be given up."""
        assert self._caller is not None
        params = {"tracker_port": self.tracker_port, "kernels": str(self.kernels), "key": self.key}
        self._caller.call("call", {**params, "kernel": "good"}, timeout_sec=within_sec)

    def command(self, kernel: str, timeout_sec: int = 60) -> list[str]:
        """Return the command line of a process that does `call`."""
        port, library = str(self.tracker_port), str(self.kernels)
        return [sys.executable, __file__, port, library, self.key, kernel, str(timeout_sec)]


def steady() -> ChildProcess:
    """Return a process that calls kernels when told: ``call`` with `Client`'s arguments and the ``kernel``."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return ChildProcess("rpc_client", access=None, env={"PYTHONPATH": path})


def _call(params: dict[str, Any]) -> None:
    client = Client(params["tracker_port"], Path(params["kernels"]), params["key"])
    client.call(params["kernel"], params.get("timeout_sec", 60))


HANDLERS = {"call": _call}


if __name__ == "__main__":
    Client(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]).call(sys.argv[4], int(sys.argv[5]))
