"""A tracker and RPC servers on this machine, for tests: real ones, on free ports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo
from tunefarm_tuning.process import ChildLimits, ChildProcess

_READY_TIMEOUT_SEC = 90.0
_REPLY_TIMEOUT_SEC = 120.0


@dataclass(frozen=True, slots=True)
class LocalRpc:
    """The processes of `local_rpc`; `device` is the address of the server."""

    device: RemoteDevice
    _child: ChildProcess

    def signal_server(self, name: str) -> None:
        """Send a signal (``"SIGKILL"``, ``"SIGSTOP"``, ``"SIGCONT"``) to the server and all its processes."""
        self._child.call("signal_server", {"signal": name}, timeout_sec=_REPLY_TIMEOUT_SEC)


@contextmanager
def local_rpc(
    *,
    key: str = "test-device",
    server_command: Sequence[str] | None = None,
    threads: int = 1,
    ready_timeout_sec: float = _READY_TIMEOUT_SEC,
) -> Iterator[LocalRpc]:
    """Start a tracker and a server; both end with the block, also after an exception.

    Args:
        key: The server's key at the tracker.
        server_command: Instead of TVM's own server; ``{tracker}`` and ``{key}`` in its words are filled in
            (``"127.0.0.1:9190"``). Its standard input stays open while it is wanted.
        threads: Threads of a kernel.
        ready_timeout_sec: How long the server may take until the tracker knows it.

    Raises:
        TransientError: If the server does not come up in time.
    """
    env = {"TVM_NUM_THREADS": str(threads)}
    with ChildProcess(
        "tunefarm_tuning.tvm.children.local_rpc",
        limits=ChildLimits(memory_bytes=None),
        access=None,  # it is the device
        env=env,
    ) as child:
        port = child.call(
            "start",
            {
                "key": key,
                "server_command": list(server_command) if server_command else None,
                "ready_timeout_sec": ready_timeout_sec,
            },
            timeout_sec=ready_timeout_sec + _REPLY_TIMEOUT_SEC,
        )
        info = DeviceInfo(model="test", num_cores=threads, name=key)
        yield LocalRpc(RemoteDevice(tracker_host="127.0.0.1", tracker_port=port, key=key, info=info), child)
