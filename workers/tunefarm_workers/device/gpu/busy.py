"""Tell whether another process uses the GPU. Timings of a kernel that shares the GPU are wrong without showing it.

Not every process that holds the GPU keeps it busy: a notebook may sleep on it for days. One counts once it computes.
"""

from __future__ import annotations

from collections.abc import Callable

from tunefarm_tuning.measure.gpu.reading import GpuReading, busy_processes, is_ours_or_gone, names_of

BUSY_GPU = 0.1
"""From this load on, with no kernel of ours running, another process must be using the GPU."""

_CALM_SEC = 10.0
"""A GPU counts as free after so many seconds without load, because work on it has pauses."""

_ECHO_SEC = 3.0
"""Seconds after a session of ours during which the driver may still report its load."""


class BusyGpu:
    """Judges readings in order; `is_ours` says whether a process belongs to this agent or has ended."""

    def __init__(self, clock: Callable[[], float], is_ours: Callable[[int], bool] | None = None) -> None:
        self._clock = clock
        self._is_ours = is_ours or is_ours_or_gone
        self._who = ""
        self._seen_at = 0.0

    def judge(self, reading: GpuReading, *, tells_our_pids: bool, unused_for_sec: float) -> str:
        """Return a text that says who keeps the GPU busy; empty if nobody does.

        Args:
            reading: The GPU's state.
            tells_our_pids: Whether its processes are those that this one can look up.
            unused_for_sec: Seconds since our last session; 0 during a session.
        """
        now = self._clock()
        who = self._who_computes(reading, tells_our_pids, unused_for_sec)
        if who:
            self._who, self._seen_at = who, now
        elif who is not None and self._who and now - self._seen_at >= _CALM_SEC:
            self._who = ""
        return self._who

    def _who_computes(self, reading: GpuReading, tells_our_pids: bool, unused_for_sec: float) -> str | None:
        """Return a text that says who computes on it now; None if that cannot be told now."""
        loaded = reading.load is not None and reading.load >= BUSY_GPU
        if tells_our_pids and reading.processes is not None:
            others = [process for process in reading.processes if not self._is_ours(process.pid)]
            if all(process.load is not None for process in reading.processes):
                computing = busy_processes(others)
                if computing:
                    return names_of(computing)
                if reading.processes:
                    return ""
            elif not others:
                return ""
        else:
            others = []
        if unused_for_sec < _ECHO_SEC:
            return None
        if not loaded:
            return ""
        return names_of(others) if others else "a process without a name"
