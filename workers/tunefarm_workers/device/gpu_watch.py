"""Tell whether kernels can be measured on the device's GPU: the driver answers, and no other process uses it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tunefarm_workers.device.gpu.busy import BusyGpu
from tunefarm_workers.device.vitals import Vitals

log = logging.getLogger("tunefarm.device")

_PATIENCE_SEC = 60.0


class GpuWatch:
    """Judges each reading of the GPU once."""

    def __init__(self, vitals: Vitals, *, clock: Callable[[], float], busy: BusyGpu | None = None) -> None:
        self._vitals = vitals
        self._busy = busy or BusyGpu(clock)
        self._judged = 0
        self._reason = "the GPU's driver has not answered yet"

    def reason(self, unused_for_sec: float) -> str:
        """Return why nothing can be measured on the GPU now; empty if it can.

        Args:
            unused_for_sec: Seconds since our last session; 0 during a session.
        """
        silent_sec = self._vitals.silent_sec()
        if silent_sec >= _PATIENCE_SEC:
            return self._note(f"the GPU's driver has not answered for over {_PATIENCE_SEC:g} s")
        latest = self._vitals.gpu()
        if latest is None or latest[0] == self._judged:
            return self._reason
        self._judged, reading, tells_our_pids = latest
        if reading.lost:
            return self._note(reading.lost)
        users = self._busy.judge(reading, tells_our_pids=tells_our_pids, unused_for_sec=unused_for_sec)
        return self._note(f"busy: the GPU is used by {users}" if users else "")

    def _note(self, reason: str) -> str:
        if reason != self._reason:
            log.info("%s", reason or "the GPU is free")
        self._reason = reason
        return reason
