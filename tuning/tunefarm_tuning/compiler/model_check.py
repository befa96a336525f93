"""The whole network on the device: compared with the reference, and timed beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.reference.comparison import Comparison
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference

_ROUNDS = 15
_SAMPLE_SEC = 0.05
_SLOW_SEC = 0.3
_SLOW_BUDGET_SEC = 2.5
_MAX_CALLS = 10_000

METHOD = (
    f"Whole inferences on one set of random inputs, the contenders in turns, there and back, so that a busy machine slows all "
    f"of them, and each once the threads of the one before are at rest: up to {_ROUNDS} samples each. A sample is the mean of as many inferences in a row as take {_SAMPLE_SEC:g} s (at least "
    f"one), after one that does not count. What takes over {_SLOW_SEC:g} s per inference gets as many samples as fit into "
    f"{_SLOW_BUDGET_SEC:g} s, its first inference among them. The latency is the median of the samples."
)
"""How `time_models` measures, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """A library's outputs on every input set."""

    sets: tuple[tuple[InputSet, tuple[Comparison, ...]], ...]

    @property
    def outputs(self) -> list[Comparison]:
        return [one for _, comparisons in self.sets for one in comparisons]

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.outputs)

    @property
    def message(self) -> str:
        """The first thing that is wrong; empty when `ok`."""
        return next(
            (f"output {clean(one.name, 80)!r}: {one.message}" for one in self.outputs if not one.ok), ""
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "max_abs_error": max((one.max_abs_error for one in self.outputs), default=0.0),
            "max_rel_error": max((one.max_rel_error for one in self.outputs), default=0.0),
            "mean_rel_error": max((one.mean_rel_error for one in self.outputs), default=0.0),
            "input_sets": [
                {"kind": one.kind.value, "seed": one.seed, "outputs": [c.to_json() for c in comparisons]}
                for one, comparisons in self.sets
            ],
        }


def compare_model(
    device: DeviceRun, library: Path, names: Sequence[str], sets: Sequence[InputSet], limits: CompileLimits
) -> ModelComparison:
    """Run a compiled network on every input set and compare its outputs.

    Raises:
        RunFailed: If it crashed or was over its time.
    """
    return ModelComparison(
        sets=tuple(
            (
                one,
                tuple(
                    Comparison.from_json(comparison)
                    for comparison in device.call(
                        "check_model",
                        {
                            "path": str(library),
                            "inputs": str(one.inputs),
                            "expected": str(one.expected),
                            "names": list(names),
                            "rounding": one.rounding,
                        },
                        timeout_sec=limits.model_sec,
                    )["comparisons"]
                ),
            )
            for one in sets
        )
    )


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
) -> dict[str, Latency]:
    """Time compiled networks, and ONNX Runtime as ``"onnxruntime"``, in turns: a busy machine slows all of them.

    What takes long per inference (TVM's plain loops, a hundred times the tuned kernels) is run a few times only.

    Raises:
        RunFailed: If one crashed or was over its time.
    """

    def library_timer(path: Path) -> _Timer:
        def sample(number: int) -> float:
            params = {"path": str(path), "inputs": str(inputs), "number": number, "repeat": 1}
            reply = device.call("time_model", params, timeout_sec=limits.model_sec)
            return float(reply["samples_sec"][0])

        return _Timer(sample, sample(1), least_samples)

    timers = {name: library_timer(path) for name, path in libraries.items()}
    if reference is not None:
        ready = reference  # for mypy: the closure below does not know that it is not None
        timers["onnxruntime"] = _Timer(
            lambda number: ready.sample(number=number, repeat=1)[0], ready.open_timed(inputs), least_samples
        )
    in_turn = list(timers.values())
    for number in range(_ROUNDS):
        # There and back, so that nobody always follows the same one.
        for timer in in_turn if number % 2 == 0 else reversed(in_turn):
            timer.turn(number)
        on_round((number + 1) / _ROUNDS)
    return {name: Latency.of(timer.samples, threads, timer.inferences) for name, timer in timers.items()}


class _Timer:
    """One contender. A slow one sits some rounds out, or all of them; its first inference counts then."""

    def __init__(self, sample: Callable[[int], float], first_sec: float, least_samples: int) -> None:
        self._sample = sample
        self._first_sec = first_sec
        slow = first_sec > _SLOW_SEC
        affordable = max(least_samples - 1, int(_SLOW_BUDGET_SEC / first_sec))
        self._turns = min(_ROUNDS, affordable) if slow else _ROUNDS
        self.samples = [first_sec] if slow else []
        self.inferences = [1] if slow else []

    def turn(self, number: int) -> None:
        if number >= self._turns:
            return
        pace = median(self.samples) if self.samples else self._first_sec
        calls = max(1, min(_MAX_CALLS, int(_SAMPLE_SEC / max(pace, 1e-7))))
        self.samples.append(self._sample(calls))
        self.inferences.append(calls)
