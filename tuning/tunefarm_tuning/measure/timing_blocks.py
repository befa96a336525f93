"""Blocks of timings: in each, every network has a sample, so that other work on the device meets all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

from tunefarm_tuning.core.latency import Latency, wait_until_idle
from tunefarm_tuning.measure.machine_watch import Watched, disturbance_of, loop_slowdown, machine_state

SAMPLE_SEC = 0.05
"""How long the inferences of a sample take together, roughly."""
_MAX_INFERENCES = 10_000
LEAST_QUIET = 5
"""Fewest quiet blocks that decide alone; if there are fewer, the least disturbed ones count as well."""
_ALIKE = 0.1
"""Blocks are alike if the cores that others took differ by no more than this."""
_LEAST_KEPT = 3
_GROUPS = 100
_LEAST_GROUPS = 5
_SLICE_SEC = 0.003
"""Inferences that take no longer are often undisturbed beside busy processes: Linux lets a thread run for some milliseconds."""
_LEAST_FAST = 5
"""Samples whose fastest inferences may have been slowed by threads that share a core, but by nothing else."""
_ENOUGH_FAST = 15
_SHARED = 1.8
"""Among `_ENOUGH_FAST` samples, a few are as fast as on a quiet device even if the others take this many times as long.

Beside another process, Linux often leaves two threads on one core for most of a sample, and inferences take twice as long. The next
sample's threads are placed anew. Where all samples take equally long, threads may have shared a core in all of them.
"""
_LITTLE = 0.3
"""Beside other work that takes less than this share of the time, threads seldom share a core."""
_ALIKE_FAST = 1.12
"""Samples are as fast as the fastest one within this factor."""
_FAST_ERROR = 1.1
"""The fastest inferences beside other work take as long as on a quiet device within this factor."""


def inferences_of_sample(inference_sec: float, most: int = _MAX_INFERENCES) -> int:
    """Return how many inferences a sample has of a network that takes so long: one at least."""
    return max(1, min(most, int(SAMPLE_SEC / max(inference_sec, 1e-7))))


def in_groups(number: int) -> int:
    """Return about as many inferences as `number`, in whole groups."""
    return number - number % _GROUPS if number > _GROUPS else number


def group_size(number: int) -> int:
    """Return how many inferences in a row are timed together, if so many are in all: the clock's readings take time."""
    return max(1, number // _GROUPS)


def time_groups(run: Callable[[], object], number: int) -> list[float]:
    """Run so many inferences in a row; return the seconds of one, in each group of them."""
    size, groups_sec = group_size(number), []
    for _ in range(number // size):
        started = time.perf_counter()
        for _ in range(size):
            run()
        groups_sec.append((time.perf_counter() - started) / size)
    return groups_sec


def warm_call_sec(run: Callable[[], object]) -> float:
    """Return how long an inference takes once the runtime is warm, roughly. Returns once its threads are idle."""
    run()
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    wait_until_idle()
    return seconds


def watched_sample(run: Callable[[], object], number: int) -> dict[str, Any]:
    """Return a sample of a runtime in this process, as JSON. Returns once its threads are idle.

    Returns:
        ``groups_sec``: `time_groups` of `number` inferences; ``sample_sec``, their mean; and ``watched``, what this machine did meanwhile,
        null if unknown.
    """
    run()  # so that its threads sleep between our calls
    before = machine_state()
    groups_sec = time_groups(run, number)
    watched = Watched.between(before, machine_state())
    wait_until_idle()
    return {
        "sample_sec": mean(groups_sec),
        "groups_sec": groups_sec,
        "watched": None if watched is None else watched.to_json(),
    }


@dataclass(frozen=True, slots=True)
class Sample:
    """The mean seconds of some inferences in a row, and what else the device did meanwhile.

    Attributes:
        sec: The mean.
        inferences: Their number.
        watched: What else the device did; None if it does not tell.
        fast_sec: What the fastest of them took (the second one); None if they were not timed one by one, or are too few.
    """

    sec: float
    inferences: int
    watched: Watched | None
    fast_sec: float | None = None

    @classmethod
    def of(
        cls,
        sec: float,
        inferences: int,
        watched: Mapping[str, object] | None,
        groups_sec: Sequence[float] | None = None,
    ) -> Sample:
        """Return the sample of a child's reply; `groups_sec` are of `time_groups`, or None from a device of an earlier release."""
        fast_sec = None
        if groups_sec is not None and len(groups_sec) >= _LEAST_GROUPS:
            fast_sec = float(sorted(groups_sec)[1])
        return cls(float(sec), inferences, None if watched is None else Watched.from_json(watched), fast_sec)


@dataclass(slots=True)
class Block:
    """A sample of each network, in random order; of a slow one, only in some blocks."""

    samples: dict[str, Sample] = field(default_factory=dict)
    loop_sec: float | None = None

    def taken_share(self, threads: int) -> float:
        """Return the share of the block's time in which others took a core."""
        return _taken_share([sample.watched for sample in self.samples.values()], threads)


def latencies_of(blocks: Sequence[Block], names: Sequence[str], threads: int) -> dict[str, Latency]:
    """Return each network's latency over the quiet blocks.

    If few are quiet, they are taken from the fastest inferences, if all networks' are short; otherwise all from the least disturbed
    blocks. A ratio of the fastest inferences of one network to the means of another says how busy the device was.
    """
    loops = [block.loop_sec for block in blocks]
    kept = [
        block
        for block in blocks
        if loop_slowdown([block.loop_sec], loops) == 1.0
        and all(
            sample.watched is None or sample.watched.is_quiet(threads) for sample in block.samples.values()
        )
    ]
    fast: dict[str, Latency | None] = {}
    if len(kept) < LEAST_QUIET:
        fast = {name: _latency_of_fastest(name, blocks, threads) for name in names}
        if None in fast.values():
            fast = {}
        shares = [block.taken_share(threads) for block in blocks]
        most = sorted(shares)[min(LEAST_QUIET, len(blocks)) - 1] + _ALIKE
        kept = [block for block, share in zip(blocks, shares, strict=True) if share <= most]
    at_least = loop_slowdown([block.loop_sec for block in kept], loops)
    return {name: fast.get(name) or _latency(name, blocks, kept, threads, at_least) for name in names}


def _latency_of_fastest(name: str, blocks: Sequence[Block], threads: int) -> Latency | None:
    """Return the latency of a network by the fastest inferences of the fastest samples; None if they tell no more than all others.

    A sample that hardly any other is as fast as does not count alone: the interval of three samples spans all of them.
    """
    every = [block.samples[name] for block in blocks if name in block.samples]
    known = [sample for sample in every if sample.fast_sec is not None]
    seconds = sorted(sample.fast_sec or 0.0 for sample in known)
    if len(seconds) < _LEAST_FAST or seconds[0] >= _SLICE_SEC:
        return None
    most_sec = max(_ALIKE_FAST * seconds[0], seconds[_LEAST_KEPT - 1])
    taken = [sample for sample in known if (sample.fast_sec or 0.0) <= most_sec]
    watched = [sample.watched for sample in every]
    disturbance = disturbance_of(watched, watched, threads, dropped=len(every) - len(taken))
    is_told = (
        len(seconds) >= _ENOUGH_FAST and sum(sec >= _SHARED * seconds[0] for sec in seconds) >= _LEAST_KEPT
    )
    shared = 1 if is_told or _taken_share(watched, threads) < _LITTLE else threads
    return Latency(
        samples_sec=tuple(sample.fast_sec or 0.0 for sample in taken),
        threads=threads,
        inferences=tuple(sample.inferences for sample in taken),
        disturbance=replace(disturbance, slowdown=_FAST_ERROR * shared, of_fastest=True),
    )


def _taken_share(watched: Sequence[Watched | None], threads: int) -> float:
    known = [stretch for stretch in watched if stretch is not None]
    wall_sec = sum(stretch.wall_sec for stretch in known)
    return sum(stretch.taken_sec(threads) for stretch in known) / wall_sec if wall_sec else 0.0


def _latency(
    name: str, blocks: Sequence[Block], kept: Sequence[Block], threads: int, at_least: float
) -> Latency:
    every = [block.samples[name] for block in blocks if name in block.samples]
    counted = [block.samples[name] for block in kept if name in block.samples]
    if len(counted) < _LEAST_KEPT:
        counted = every
    disturbance = disturbance_of(
        [sample.watched for sample in counted],
        [sample.watched for sample in every],
        threads,
        dropped=len(every) - len(counted),
    )
    return Latency(
        samples_sec=tuple(sample.sec for sample in counted),
        threads=threads,
        inferences=tuple(sample.inferences for sample in counted),
        disturbance=replace(disturbance, slowdown=max(disturbance.slowdown, at_least)),
    )


def latency_of_samples(
    samples_sec: Sequence[float],
    watched: Sequence[Watched | None],
    loops_sec: Sequence[float | None],
    *,
    threads: int,
    inferences: int,
) -> Latency:
    """Return the latency of a network that was timed alone, from what was noted of each sample, as `time_models` does of many."""
    blocks = [
        Block(samples={"network": Sample(sec, inferences, stretch)}, loop_sec=loop_sec)
        for sec, stretch, loop_sec in zip(samples_sec, watched, loops_sec, strict=True)
    ]
    return latencies_of(blocks, ["network"], threads)["network"]
