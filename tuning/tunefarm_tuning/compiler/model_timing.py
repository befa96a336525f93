"""Timing of whole networks, in interleaved blocks, and whether the tuned one is slower than the untuned one."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.latency import Latency, is_quiet
from tunefarm_tuning.core.ratio import speedup
from tunefarm_tuning.measure.baselines.baseline import Baseline, BaselineFailed
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.timing_blocks import (
    LEAST_QUIET,
    SAMPLE_SEC,
    Block,
    Sample,
    in_groups,
    inferences_of_sample,
    latencies_of,
)
from tunefarm_tuning.reference.onnx_runtime import Reference

_ROUNDS = 15
_LEAST_ROUNDS = 5
_MAX_BLOCKS = 200
_LEAST_BLOCKS = 10
"""An interval of fewer blocks is often narrow by chance, and timing ends where it is narrow."""
_LEAST_DECIDING = 5
"""Blocks after which a difference that no noise explains may be decided upon."""
_ENOUGH = 1.06
"""No more blocks are timed once each ratio's interval ends within this many times its lower end."""
_ALL_ROUNDS = 60
"""Samples over all sets of shapes, if there are many."""
_SLOW_SEC = 0.3
_SLOW_BUDGET_SEC = 2.5

_MAX_REPETITIONS = 3
_MAX_REPETITIONS_SLOW = 2
_SLOW_REPETITION_SEC = 1.0
"""A network that takes longer than this per inference is timed twice at most."""
_MIN_SAMPLES_TO_REJECT = 5
_UNDISTURBED_PERCENTILE = 25.0

METHOD = (
    "Whole inferences on one set of random inputs. The networks are timed in blocks: in each, every network has one sample, in "
    "random order, so that other load slows all of them. Each starts when the threads of the previous network are idle. There are up to "
    f"{_ROUNDS} blocks; for a network with several shapes, up to {_ALL_ROUNDS} over all shapes and at least "
    f"{_LEAST_ROUNDS} for each. A sample is the mean of as many consecutive inferences as take "
    f"{SAMPLE_SEC:g} s (at least one), after an inference that does not count. A network that takes over "
    f"{_SLOW_SEC:g} s per inference gets as many samples as fit into {_SLOW_BUDGET_SEC:g} s, including its "
    "first inference. Meanwhile the device's processor time is watched, and a loop of constant work runs before each block. "
    "Blocks in which other programs, or a hypervisor's other guests, took processor time do not count, if at least "
    f"{LEAST_QUIET} quiet blocks remain; more blocks follow while intervals are wide and time is left. The latency is the median of the "
    "samples. A ratio of two latencies has a 95 % interval, from a bootstrap over blocks. If too few blocks were quiet and "
    "inferences take less than 2 ms, only the fastest inferences of the fastest samples count, to within 5 % if 15 samples show that "
    "threads sometimes had cores of their own. Otherwise the interval is wider by as much as other work may have slowed the samples. "
    "If it is then unclear whether the tuned network is slower than the untuned network, the tuned network is dropped, unless it is not "
    "slower within most blocks and the sum of its kernels is not slower either."
)
"""How `time_models` measures, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Networks that are timed in turns.

    Attributes:
        device: Runs the libraries.
        libraries: By name.
        reference: ONNX Runtime, to be timed as ``"onnxruntime"``; None leaves it out.
        others: Further runtimes by name. One that fails, now or while it is timed, is left out; its `facts` say why.
        inputs: The file of the inputs.
        entry: The libraries' function to time.
        threads: The number of threads of each network.
    """

    device: DeviceRun
    libraries: Mapping[str, Path]
    reference: Reference | None = None
    others: Mapping[str, Baseline] = field(default_factory=dict)
    inputs: Path
    entry: str = "main"
    threads: int


def compare_latency(
    networks: SideBySide,
    *,
    limits: CompileLimits,
    on_round: Callable[[float], None],
    rounds: int = _ROUNDS,
) -> tuple[dict[str, Latency], bool | None]:
    """Time networks in blocks; say whether ``"tuned"`` is slower than ``"untuned"`` by more than `limits` allow.

    `is_slower` decides. While it cannot, more blocks are timed; if the samples are few or vary, all networks are timed again. At
    last the medians decide; where other work disturbed them, the ratios within the blocks, whose samples it hit alike.

    Args:
        networks: The libraries are ``"untuned"``, and ``"tuned"`` if there is another one.
        limits: Limits of a call (`model_sec`) and of the slow-down (`model_ratio`), and the time for further blocks
            (`timing_sec`), of which each of many sets of shapes gets its share.
        on_round: Called with the share of a repetition that is done.
        rounds: Samples at most.

    Returns:
        Latencies by name, and whether the tuned network is slower: None if only the ratios within disturbed blocks say that it is not.

    Raises:
        RunFailed: If a network crashed or exceeded its time.
    """
    until = time.monotonic() + limits.timing_sec * rounds / _ROUNDS
    for repetition in range(_MAX_REPETITIONS):
        blocks: list[Block] = []
        latency = time_models(
            networks,
            limits=limits,
            on_round=on_round,
            least_samples=_MIN_SAMPLES_TO_REJECT if repetition else 1,
            rounds=rounds,
            until=until,
            blocks=blocks,
        )
        if "tuned" not in latency:
            return latency, False
        tuned, untuned = latency["tuned"], latency["untuned"]
        slower = is_slower(tuned, untuned, limits.model_ratio)
        if slower is not None:
            return latency, slower
        if is_quiet([tuned, untuned]) is False and not _are_few(tuned, untuned) and time.monotonic() >= until:
            break  # as many blocks again would be disturbed like these
        if repetition + 1 >= _MAX_REPETITIONS_SLOW and tuned.median_sec > _SLOW_REPETITION_SEC:
            break
    if is_quiet([tuned, untuned]) is not False:
        return latency, True
    within = _ratio_within_blocks(blocks, "tuned", "untuned")
    return latency, None if within is not None and within <= limits.model_ratio else True


def is_slower(tuned: Latency, untuned: Latency, ratio: float) -> bool | None:
    """Return whether `tuned` takes more than `ratio` times as long as `untuned`; None if the samples do not tell.

    It does if both the medians and the lower quartiles say so: other work makes samples longer, never shorter. Of samples that
    other work slowed, only the ratio's whole interval tells anything.
    """
    if math.isinf(ratio):
        return False
    is_disturbed = is_quiet([tuned, untuned]) is False
    if not is_disturbed and tuned.median_sec <= ratio * untuned.median_sec:
        return False
    if _are_few(tuned, untuned):
        return None
    if is_disturbed:
        gain = speedup(untuned, tuned)
        if gain.low is None or gain.high is None:
            return None
        if gain.low * ratio >= 1.0:
            return False
        if gain.high * ratio >= 1.0:
            return None
    return True if _undisturbed_sec(tuned) > ratio * _undisturbed_sec(untuned) else None


def _ratio_within_blocks(blocks: Sequence[Block], name: str, other: str) -> float | None:
    """Return the median, over the blocks with both, of one network's time in another's; None if there is none."""
    ratios = [
        block.samples[name].sec / block.samples[other].sec
        for block in blocks
        if name in block.samples and other in block.samples
    ]
    return median(ratios) if ratios else None


def _are_few(*latencies: Latency) -> bool:
    """Return whether a network has too few samples; the fastest of many, which agree, are not few."""
    return any(
        len(latency.samples_sec) < _MIN_SAMPLES_TO_REJECT and not latency.is_of_fastest
        for latency in latencies
    )


def _undisturbed_sec(latency: Latency) -> float:
    return float(np.percentile(latency.samples_sec, _UNDISTURBED_PERCENTILE))


def time_models(
    networks: SideBySide,
    *,
    limits: CompileLimits,
    on_round: Callable[[float], None],
    least_samples: int = 1,
    rounds: int = _ROUNDS,
    until: float = 0.0,
    decide: float | None = None,
    blocks: list[Block] | None = None,
) -> dict[str, Latency]:
    """Time networks in blocks: a busy machine slows all of them.

    A network that takes long per inference (unscheduled loops take a hundred times as long as tuned kernels) is run a few times only.

    Args:
        networks: The networks.
        limits: `model_sec` limits each call.
        on_round: Called with the share that is done.
        least_samples: Samples that even a slow network gets.
        rounds: Blocks at least, unless the intervals are narrow before.
        until: When the last block begins, on the monotonic clock, if intervals are still wide after `rounds`.
        decide: The ratio of another network's time to the first one's that the caller decides by: once no interval holds it, fewer
            blocks do.
        blocks: The blocks are appended to it.

    Raises:
        RunFailed: If a network crashed or exceeded its time.
    """
    timers = _timers(networks, limits, least_samples, rounds)
    blocks = [] if blocks is None else blocks
    blocks.append(Block(samples={name: timer.first for name, timer in timers.items() if timer.first}))
    order, rng = list(timers), random.Random(0)  # noqa: S311  (an order, not a secret)
    for number in range(_MAX_BLOCKS):
        # In random order, so that no network always follows the same one.
        rng.shuffle(order)
        block = Block(
            loop_sec=networks.device.call("yardstick_loop", {}, timeout_sec=limits.model_sec)["loop_sec"]
        )
        for name in order:
            try:
                sample = timers[name].turn(number)
            except BaselineFailed:
                del timers[name]
                continue
            if sample is not None:
                block.samples[name] = sample
        order = [name for name in order if name in timers]
        blocks.append(block)
        latency = latencies_of(blocks, list(timers), networks.threads)
        fast = {name: latency[name] for name in timers if not timers[name].is_slow}
        if number + 1 >= _LEAST_BLOCKS and _are_narrow(fast):
            break
        if number + 1 >= _LEAST_DECIDING and decide is not None and _are_beyond(decide, fast):
            break
        if number + 1 >= rounds and (len(fast) < len(timers) or time.monotonic() >= until):
            break
        on_round(min(1.0, (number + 1) / rounds))
    on_round(1.0)
    return latency


def _timers(
    networks: SideBySide, limits: CompileLimits, least_samples: int, rounds: int
) -> dict[str, _Timer]:
    """Open all networks."""
    timers: dict[str, _Timer] = {}
    for name, path in networks.libraries.items():
        sample = partial(_library_sample, networks, path, limits)
        timers[name] = _Timer(sample, sample(1).sec, least_samples, rounds)
    reference = networks.reference
    if reference is not None:
        first_sec = reference.open_timed(networks.inputs)
        timers["onnxruntime"] = _Timer(_sampler(reference), first_sec, least_samples, rounds)
    for name, other in networks.others.items():
        with suppress(BaselineFailed):
            timers[name] = _Timer(_sampler(other), other.open_timed(), least_samples, rounds)
    return timers


def _library_sample(networks: SideBySide, path: Path, limits: CompileLimits, number: int) -> Sample:
    params = {
        "path": str(path), "entry": networks.entry, "inputs": str(networks.inputs),
        "number": number, "repeat": 1, "in_groups": True,
    }  # fmt: skip
    reply = networks.device.call("time_model", params, timeout_sec=limits.model_sec)
    return Sample.of(reply["samples_sec"][0], number, reply["watched"], reply.get("groups_sec"))


def _sampler(runtime: Baseline | Reference) -> Callable[[int], Sample]:
    def sample(number: int) -> Sample:
        reply = runtime.sample(number)
        return Sample.of(reply["sample_sec"], number, reply["watched"], reply.get("groups_sec"))

    return sample


def rounds_for(entries: int) -> int:
    """Return how many samples a network gets in each of its sets of shapes: fewer if there are many."""
    return max(_LEAST_ROUNDS, min(_ROUNDS, _ALL_ROUNDS // entries))


def _are_narrow(latency: Mapping[str, Latency]) -> bool:
    """Return whether more blocks would tell little: the intervals of all ratios to the first network are narrow."""
    if not latency:
        return True
    first, *others = latency.values()
    ratios = [speedup(other, first) for other in others or [first]]
    return all(
        ratio.low is not None and ratio.high is not None and ratio.high <= _ENOUGH * ratio.low
        for ratio in ratios
    )


def _are_beyond(ratio: float, latency: Mapping[str, Latency]) -> bool:
    """Return whether no interval of another network's ratio to the first holds a ratio."""
    if len(latency) < 2:
        return False
    first, *others = latency.values()
    intervals = [speedup(other, first) for other in others]
    return all(
        interval.low is not None
        and interval.high is not None
        and (interval.low > ratio or interval.high < ratio)
        for interval in intervals
    )


class _Timer:
    """Samples one network. A slow one skips some blocks, or all of them; its first inference is then a sample."""

    def __init__(
        self, sample: Callable[[int], Sample], first_sec: float, least_samples: int, rounds: int
    ) -> None:
        self._sample = sample
        self.is_slow = first_sec > _SLOW_SEC
        affordable = max(least_samples - 1, int(_SLOW_BUDGET_SEC / first_sec))
        self._turns = min(rounds, affordable) if self.is_slow else _MAX_BLOCKS
        self.first = Sample(first_sec, 1, None) if self.is_slow else None
        self._seconds = [first_sec]

    def turn(self, number: int) -> Sample | None:
        """Return the sample of a block; None if it skips it."""
        if number >= self._turns:
            return None
        sample = self._sample(in_groups(inferences_of_sample(median(self._seconds))))
        self._seconds.append(sample.sec)
        return sample
