"""The children of a worker that build and measure: kept from step to step, and apart by the owner of the jobs that they serve."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.runner.rpc import RpcRunner
from tunefarm_tuning.process.device_address import DeviceAddress

_MAX_RUNNERS = 4
_MAX_OWNERS = 3
_SHARE_OF_AN_OWNER = 8
"""Children that wait for an owner's next step may take an eighth of the memory, in each process of a worker."""
_CHILD_BYTES = 256 << 20
_COST_MODEL = "tunefarm_tuning.cost_model.xgb"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class KeptChildren(Closing):
    """Children of the last few owners, each of which another owner's jobs may have taken over.

    They take seconds to start, and a quarter of a gigabyte each. Those of an owner whose jobs alternate with others' wait
    meanwhile, if the machine has the memory, and no longer than all children wait. Concurrency: any thread.

    Args:
        workers: How many processes build for an owner; one per core if None.
        idle_sec: All children are ended after so long without a step that needs any.
        memory_bytes: Of the machine or container.
    """

    def __init__(self, workers: int | None, idle_sec: float, *, memory_bytes: int | None = None) -> None:
        self._workers, self._idle_sec = workers, idle_sec
        self._memory_bytes = machine_memory_bytes() if memory_bytes is None else memory_bytes
        self._lock = threading.Lock()
        self._owner: str | None = None
        self._of: OrderedDict[str | None, _Children] = OrderedDict()
        self._idle: threading.Timer | None = None
        self._uses = 0

    def serve(self, owner: str | None) -> None:
        """Use this owner's children from now on."""
        with self._lock:
            self._owner = owner

    def take(self, remote: RemoteDevice) -> tuple[LocalBuilder, RpcRunner]:
        """Return what builds, and what measures on a device."""
        with self._lock:
            self._uses += 1
            ended = self._pop_others()
        for former in ended:  # before new ones take as much memory again
            former.close()
        with self._lock:
            if self._owner not in self._of:
                self._of[self._owner] = _Children(self._workers)
            self._of.move_to_end(self._owner)
            children = self._of[self._owner]
            children.used_at = time.monotonic()
            return children.builder, children.runner(remote)

    def _pop_others(self) -> list[_Children]:
        """Take out the children of owners for whom they have waited too long, or for whom there is no memory beside the present one's."""
        others = [owner for owner in self._of if owner != self._owner]
        workers = self._workers or os.cpu_count() or 1
        own_bytes = (workers + 1) * _CHILD_BYTES
        most = min(_MAX_OWNERS, max(1, self._memory_bytes // (_SHARE_OF_AN_OWNER * own_bytes))) - 1
        oldest = time.monotonic() - self._idle_sec
        return [
            self._of.pop(owner)
            for position, owner in enumerate(others)
            if position < len(others) - most or self._of[owner].used_at < oldest
        ]

    def rest(self) -> None:
        """End the children later, unless there is work by then."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            self._idle = threading.Timer(self._idle_sec, self._end, kwargs={"unless_used_since": self._uses})
            self._idle.daemon = True
            self._idle.start()

    def close(self) -> None:
        """End all children. The next step that needs some starts new ones."""
        self._end()

    def _end(self, *, unless_used_since: int | None = None) -> None:
        with self._lock:
            if unless_used_since is not None and unless_used_since != self._uses:
                return
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
            ended = list(self._of.values())
            self._of.clear()
        for children in ended:
            children.close()


class _Children(Closing):
    """The children of one owner. They start in the background."""

    def __init__(self, workers: int | None) -> None:
        self.builder = LocalBuilder(workers=workers)
        self.used_at = 0.0
        self._runners: OrderedDict[DeviceAddress, RpcRunner] = OrderedDict()
        try:
            self.builder.spawn()
        except BaseException:
            self.builder.close()
            raise
        # XGBoost takes as long to load as TVM, which that child does meanwhile, as does the one that measures.
        threading.Thread(target=import_module, args=(_COST_MODEL,), name="load-xgboost", daemon=True).start()

    def runner(self, remote: RemoteDevice) -> RpcRunner:
        key = remote.address
        if key not in self._runners:
            self._runners[key] = RpcRunner(remote)
            self._runners[key].spawn(self.builder.folder)
        self._runners[key].use_lease(remote.fence, clock_mhz=remote.clock_mhz)
        self._runners.move_to_end(key)
        while len(self._runners) > _MAX_RUNNERS:
            self._runners.popitem(last=False)[1].close()
        return self._runners[key]

    def close(self) -> None:
        self.builder.close()
        for runner in self._runners.values():
            runner.close()


def machine_memory_bytes() -> int:
    """Return the memory of this machine, or of this container if that has less."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # a control group without a limit says "max"
        memory_bytes = min(memory_bytes, int(_CGROUP_LIMIT.read_text()))
    return memory_bytes
