"""Watch what else a machine does while something is timed on it: other processes, a hypervisor's other guests.

Linux counts the seconds that each core was busy. What is not this process's own was others'. A loop of constant work shows what
no counter does, such as a neighbour in the same physical core.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.core.latency import Disturbance

_TICK_SEC = 0.015
"""Linux counts in ticks of 10 ms: a short stretch may seem this much busier than it was."""
_NOISE = 0.05
"""Share of a core that a machine's own housekeeping takes; less does not count as a disturbance."""
_LOOP_BYTES = 1 << 20
_LOOP_REPEAT = 8
_SLOW_LOOP = 1.5
"""A loop that takes this many times as long as the fastest one was disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState(JsonFields):
    """Counters of the cores that this process may use; all times in seconds.

    Attributes:
        at_sec: A monotonic clock.
        own_sec: Processor time of this process.
        busy_sec: Time that the cores were busy, summed over them.
        steal_sec: Time that a hypervisor withheld from them.
        cores: Their number.
        switches: Context switches that others forced upon this process.
        stalled_sec: Time in which a runnable thread waited for a core (PSI); None if the system does not tell.
    """

    at_sec: float
    own_sec: float
    busy_sec: float
    steal_sec: float
    cores: int
    switches: int
    stalled_sec: float | None = None


def machine_state(proc: Path = Path("/proc")) -> MachineState | None:
    """Return the counters now; None if the system has none (it is not Linux)."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    try:
        seconds = list(_core_seconds((proc / "stat").read_text(), cores))
    except (OSError, ValueError):
        return None
    if not seconds:
        return None
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return MachineState(
        at_sec=time.monotonic(),
        own_sec=usage.ru_utime + usage.ru_stime,
        busy_sec=sum(busy for busy, _ in seconds),
        steal_sec=sum(steal for _, steal in seconds),
        cores=len(seconds),
        switches=usage.ru_nivcsw,
        stalled_sec=_stalled_sec(proc / "pressure/cpu"),
    )


def _core_seconds(stat: str, cores: Collection[int]) -> Iterator[tuple[float, float]]:
    """Yield the busy and the stolen seconds of each core, from the text of ``/proc/stat``."""
    per_sec = os.sysconf("SC_CLK_TCK")
    for line in re.findall(r"^cpu(\d+ .*)$", stat, re.MULTILINE):
        number, user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[:9])
        if number in cores:
            yield (user + nice + system + irq + softirq) / per_sec, steal / per_sec


def _stalled_sec(pressure: Path) -> float | None:
    with suppress(OSError, ValueError, AttributeError):
        return int(re.search(r"^some .*total=(\d+)", pressure.read_text(), re.MULTILINE).group(1)) / 1e6  # type: ignore[union-attr]
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(JsonFields):
    """What happened on a machine between two `MachineState`.

    Attributes:
        wall_sec: The time between them.
        cores: The number of cores.
        others_sec: Processor time of others, and what a hypervisor withheld, summed over the cores.
        steal_sec: The second part of it.
        switches: As in `MachineState`.
        stalled_sec: As there.
    """

    wall_sec: float
    cores: int
    others_sec: float
    steal_sec: float
    switches: int
    stalled_sec: float | None

    @classmethod
    def between(cls, before: MachineState | None, after: MachineState | None) -> Watched | None:
        """Return the difference; None without both."""
        if before is None or after is None:
            return None
        own_sec, steal_sec = after.own_sec - before.own_sec, after.steal_sec - before.steal_sec
        known = before.stalled_sec is not None and after.stalled_sec is not None
        return cls(
            wall_sec=max(after.at_sec - before.at_sec, 1e-9),
            cores=after.cores,
            others_sec=max(0.0, after.busy_sec - before.busy_sec - own_sec) + steal_sec,
            steal_sec=steal_sec,
            switches=after.switches - before.switches,
            stalled_sec=after.stalled_sec - before.stalled_sec if known else None,  # type: ignore[operator]
        )

    def taken_sec(self, threads: int) -> float:
        """Return the processor time that others took from this many threads: what the spare cores could not give them."""
        spare_sec = max(0, self.cores - threads) * self.wall_sec
        return max(0.0, self.others_sec - spare_sec)

    def is_quiet(self, threads: int) -> bool:
        """Return whether others took nothing that the counters can tell apart from nothing."""
        return self.taken_sec(threads) <= _TICK_SEC + _NOISE * self.wall_sec


def slowdown(watched: Sequence[Watched | None], threads: int) -> float:
    """Return how many times as long threads may take that others took processor time from; 1 if nobody did, or it is unknown.

    Threads wait for each other, so one that shares its core with one other program makes all of them take twice as long.
    """
    known = [stretch for stretch in watched if stretch is not None]
    wall_sec = sum(stretch.wall_sec for stretch in known)
    if not wall_sec:
        return 1.0
    taken = sum(stretch.taken_sec(threads) for stretch in known) / wall_sec - _NOISE
    if taken <= 0:
        return 1.0
    on_one_core = 1.0 / (1.0 - min(taken, 0.5))
    on_all_cores = threads / max(threads - taken, 0.1 * threads)
    return max(on_one_core, on_all_cores)


def loop_slowdown(loops_sec: Iterable[float | None], all_sec: Iterable[float | None]) -> float:
    """Return how many times as long yardstick loops took as the fastest of all; 1 if that may be noise, or none ran."""
    some = [sec for sec in loops_sec if sec is not None]
    if not some:
        return 1.0
    times = median(some) / min(sec for sec in all_sec if sec is not None)
    return times if times > _SLOW_LOOP else 1.0


def disturbance_of(
    counted: Sequence[Watched | None], all_watched: Sequence[Watched | None], threads: int, *, dropped: int
) -> Disturbance:
    """Return what to say of the other work.

    Args:
        counted: The stretches whose samples count.
        all_watched: All stretches.
        threads: The number of timed threads.
        dropped: The number of dropped blocks.
    """
    known = [stretch for stretch in all_watched if stretch is not None]
    wall_sec = sum(stretch.wall_sec for stretch in known)
    blocks = len(all_watched)
    if not wall_sec:
        return Disturbance(blocks=blocks, dropped=dropped)
    stalled = [stretch.stalled_sec for stretch in known if stretch.stalled_sec is not None]
    return Disturbance(
        blocks=blocks,
        dropped=dropped,
        slowdown=slowdown(counted, threads),
        others_cores=sum(stretch.others_sec for stretch in known) / wall_sec,
        steal_share=sum(stretch.steal_sec / stretch.cores for stretch in known) / wall_sec,
        stalled_share=sum(stalled) / wall_sec if stalled else None,
        switches_per_sec=sum(stretch.switches for stretch in known) / wall_sec,
    )


def yardstick_loop_sec() -> float:
    """Return how long a loop of constant work takes on all cores at once, in seconds: a few milliseconds if nobody disturbs it."""
    work = bytes(_LOOP_BYTES)

    def run() -> None:
        for _ in range(_LOOP_REPEAT):
            hashlib.sha256(work).digest()  # without the interpreter's lock

    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = [threading.Thread(target=run) for _ in range(count)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started
