"""Timing of whole networks, in turns, and whether the tuned one is slower than the untuned one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import numpy as np

from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.reference.onnx_runtime import Reference

_ROUNDS = 15
_LEAST_ROUNDS = 5
_ALL_ROUNDS = 60
"""Samples over all sets of shapes, if there are many."""
_SAMPLE_SEC = 0.05
_SLOW_SEC = 0.3
_SLOW_BUDGET_SEC = 2.5
_MAX_CALLS = 10_000

_MAX_REPETITIONS = 3
_MAX_REPETITIONS_SLOW = 2
_SLOW_REPETITION_SEC = 1.0
"""A network that takes longer than this per inference is timed twice at most."""
_MIN_SAMPLES_TO_REJECT = 5
_UNDISTURBED_PERCENTILE = 25.0

METHOD = (
    "Whole inferences on one set of random inputs. The networks are timed in turn, in alternating order, so "
    "that other load slows all of them. Each starts when the threads of the previous one are idle. Up to "
    f"{_ROUNDS} samples each; of a network of several shapes, up to {_ALL_ROUNDS} over all shapes and at least "
    f"{_LEAST_ROUNDS} of each. A sample is the mean of as many consecutive inferences as take "
    f"{_SAMPLE_SEC:g} s (at least one), after one that does not count. A network that takes over "
    f"{_SLOW_SEC:g} s per inference gets as many samples as fit into {_SLOW_BUDGET_SEC:g} s, including its "
    "first inference. The latency is the median of the samples."
)
"""How `time_models` measures, for people."""


def compare_latency(
    device: DeviceRun,
    libraries: Mapping[str, Path],
    reference: Reference | None,
    inputs: Path,
    *,
    threads: int,
    limits: CompileLimits,
    on_round: Callable[[float], None],
    entry: str = "main",
    rounds: int = _ROUNDS,
) -> tuple[dict[str, Latency], bool]:
    """Time networks in turns; say whether ``"tuned"`` is slower than ``"untuned"`` by more than `limits` allow.

    It is slower if both the medians and the lower quartiles say so: other work on the machine makes samples longer, never
    shorter. If the two disagree, or the samples are few, all networks are timed again; the last time the medians decide.

    Args:
        device: Runs the networks.
        libraries: ``"untuned"``, and ``"tuned"`` if there is another library.
        reference: ONNX Runtime, to be timed beside them; None leaves it out.
        inputs: The file of the inputs.
        threads: The number of threads of each network.
        limits: Limits of a call (`model_sec`) and of the slow-down (`model_ratio`).
        on_round: Called with the share of a repetition that is done.
        entry: The libraries' function to time.
        rounds: Samples at most.

    Returns:
        Latencies by the names in `libraries` (and ``"onnxruntime"``), and whether the tuned network is slower.

    Raises:
        RunFailed: If a network crashed or exceeded its time.
    """
    for repetition in range(_MAX_REPETITIONS):
        latency = time_models(
            device,
            libraries,
            reference,
            inputs,
            threads=threads,
            limits=limits,
            on_round=on_round,
            least_samples=_MIN_SAMPLES_TO_REJECT if repetition else 1,
            entry=entry,
            rounds=rounds,
        )
        if "tuned" not in latency:
            return latency, False
        slower = is_slower(latency["tuned"], latency["untuned"], limits.model_ratio)
        if slower is not None:
            return latency, slower
        if repetition + 1 >= _MAX_REPETITIONS_SLOW and latency["tuned"].median_sec > _SLOW_REPETITION_SEC:
            break
    return latency, True


def is_slower(tuned: Latency, untuned: Latency, ratio: float) -> bool | None:
    """Return whether `tuned` takes more than `ratio` times as long as `untuned`; None if the samples do not tell."""
    if tuned.median_sec <= ratio * untuned.median_sec:
        return False
    few = min(len(tuned.samples_sec), len(untuned.samples_sec)) < _MIN_SAMPLES_TO_REJECT
    return None if few or _undisturbed_sec(tuned) <= ratio * _undisturbed_sec(untuned) else True


def _undisturbed_sec(latency: Latency) -> float:
    return float(np.percentile(latency.samples_sec, _UNDISTURBED_PERCENTILE))


def time_models(
    device: DeviceRun,
    libraries: Mapping[str, Path],
    reference: Reference | None,
    inputs: Path,
    *,
    threads: int,
    limits: CompileLimits,
    on_round: Callable[[float], None],
    least_samples: int = 1,
    entry: str = "main",
    rounds: int = _ROUNDS,
) -> dict[str, Latency]:
    """Time compiled networks, and ONNX Runtime as ``"onnxruntime"``, in turns: a busy machine slows all of them.

    A network that takes long per inference (unscheduled loops take a hundred times as long as tuned kernels) is run a few times only.

    Args:
        device: Runs the networks.
        libraries: Libraries by name.
        reference: ONNX Runtime; None leaves it out.
        inputs: The file of the inputs.
        threads: The number of threads of each network.
        limits: `model_sec` limits each call.
        on_round: Called with the share that is done.
        least_samples: Samples that even a slow network gets.
        entry: The libraries' function to time.
        rounds: Samples at most.

    Raises:
        RunFailed: If a network crashed or exceeded its time.
    """

    def library_timer(path: Path) -> _Timer:
        def sample(number: int) -> float:
            params = {
                "path": str(path), "entry": entry, "inputs": str(inputs), "number": number, "repeat": 1
            }  # fmt: skip
            reply = device.call("time_model", params, timeout_sec=limits.model_sec)
            return float(reply["samples_sec"][0])

        return _Timer(sample, sample(1), least_samples, rounds)

    timers = {name: library_timer(path) for name, path in libraries.items()}
    if reference is not None:
        onnx_runtime = reference  # for mypy: the closure below does not know that it is not None
        timers["onnxruntime"] = _Timer(
            lambda number: onnx_runtime.sample(number=number, repeat=1)[0],
            onnx_runtime.open_timed(inputs),
            least_samples,
            rounds,
        )
    in_turn = list(timers.values())
    for number in range(rounds):
        # Forwards and backwards, so that no network always follows the same one.
        for timer in in_turn if number % 2 == 0 else reversed(in_turn):
            timer.turn(number)
        on_round((number + 1) / rounds)
    return {name: Latency.of(timer.samples, threads, timer.inferences) for name, timer in timers.items()}


def rounds_for(entries: int) -> int:
    """Return how many samples a network gets in each of its sets of shapes: fewer if there are many."""
    return max(_LEAST_ROUNDS, min(_ROUNDS, _ALL_ROUNDS // entries))


class _Timer:
    """Samples one network. A slow one skips some rounds, or all of them; its first inference is then a sample."""

    def __init__(
        self, sample: Callable[[int], float], first_sec: float, least_samples: int, rounds: int
    ) -> None:
        self._sample = sample
        self._first_sec = first_sec
        slow = first_sec > _SLOW_SEC
        affordable = max(least_samples - 1, int(_SLOW_BUDGET_SEC / first_sec))
        self._turns = min(rounds, affordable) if slow else rounds
        self.samples = [first_sec] if slow else []
        self.inferences = [1] if slow else []

    def turn(self, number: int) -> None:
        if number >= self._turns:
            return
        pace = median(self.samples) if self.samples else self._first_sec
        calls = max(1, min(_MAX_CALLS, int(_SAMPLE_SEC / max(pace, 1e-7))))
        self.samples.append(self._sample(calls))
        self.inferences.append(calls)
