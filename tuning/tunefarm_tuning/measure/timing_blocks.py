"""Blocks of timings: in each, every network has a sample, so that other work on the device meets all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.machine_watch import Watched, disturbance_of, loop_slowdown

LEAST_QUIET = 5
"""Quiet blocks that count alone; with fewer of them, the least disturbed ones count as well."""
_ALIKE = 0.1
"""Blocks are alike if the cores that others took differ by no more than this."""
_LEAST_KEPT = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """The mean seconds of some inferences in a row, and what else the device did meanwhile."""

    sec: float
    inferences: int
    watched: Watched | None

    @classmethod
    def of(cls, sec: float, inferences: int, watched: Mapping[str, object] | None) -> Sample:
        """Return the sample of a child's reply."""
        return cls(float(sec), inferences, None if watched is None else Watched.from_json(watched))


@dataclass(slots=True)
class Block:
    """A sample of each network, in random order; of a slow one, only in some blocks."""

    samples: dict[str, Sample] = field(default_factory=dict)
    loop_sec: float | None = None

    def taken_share(self, threads: int) -> float:
        """Return the share of the block's time in which others took a core."""
        watched = [sample.watched for sample in self.samples.values() if sample.watched is not None]
        wall_sec = sum(stretch.wall_sec for stretch in watched)
        return sum(stretch.taken_sec(threads) for stretch in watched) / wall_sec if wall_sec else 0.0


def latencies_of(blocks: Sequence[Block], names: Sequence[str], threads: int) -> dict[str, Latency]:
    """Return each network's latency over the quiet blocks; over the least disturbed ones, if few are quiet."""
    loops = [block.loop_sec for block in blocks]
    kept = [
        block
        for block in blocks
        if loop_slowdown([block.loop_sec], loops) == 1.0
        and all(
            sample.watched is None or sample.watched.is_quiet(threads) for sample in block.samples.values()
        )
    ]
    if len(kept) < LEAST_QUIET:
        shares = [block.taken_share(threads) for block in blocks]
        most = sorted(shares)[min(LEAST_QUIET, len(blocks)) - 1] + _ALIKE
        kept = [block for block, share in zip(blocks, shares, strict=True) if share <= most]
    at_least = loop_slowdown([block.loop_sec for block in kept], loops)
    return {name: _latency(name, blocks, kept, threads, at_least) for name in names}


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
