"""Time the contenders of a network in turns, each in its own process, so that their threads do not collide."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benchmarks.search.machine import child_environment
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.process import ChildFailed, ChildLimits, ChildProcess, ChildTimedOut
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.workload.task import TensorSpec

ROUNDS = 7
SAMPLE_SEC = 0.3
SLOW_SEC = 1.0  # what takes that long is run a few times only
SLOW_TURNS = 3
OPEN_SEC = 1200.0  # torch.compile takes its time
RUN_SEC = 300.0
SLOWEST_SEC = 30.0  # an inference without tuning that takes longer is not waited for
UNTUNED = ("untuned", "plain")
TORCH = ("torch", "torch_compile")
ONNXRUNTIME = ("onnxruntime", "onnxruntime_still")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The largest absolute difference from the reference's outputs, and its ratio to the reference's RMS."""

    largest: float
    relative: float


@dataclass(slots=True, kw_only=True)
class Timing:
    """Samples and differences of a network's contenders.

    Attributes:
        samples_sec: Seconds per inference, by contender; one sample a round. ``artifact_call`` and ``onnxruntime_call`` are calls
            as a user writes them.
        left_out: Why a contender is not there.
        difference: Of the artifact's outputs from ONNX Runtime's without graph optimisations.
    """

    samples_sec: dict[str, list[float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    difference: Difference | None = None


class _Turns:
    """One contender's process and its samples."""

    def __init__(self, kind: str, child: ChildProcess) -> None:
        self.kind = kind
        self._child = child
        self._pace: dict[str, float] = {}
        self.samples: dict[str, list[float]] = {}

    def turn(self, method: str, name: str, number: int) -> None:
        pace = self._pace.get(method)
        if pace is None:
            # The first does not count where it is quick: memory is touched for the first time.
            pace = self._pace[method] = self._first(method)
            if pace > SLOW_SEC:
                self.samples[name] = [pace]
                return
        if pace > SLOW_SEC and number >= SLOW_TURNS:
            return
        count = max(1, int(SAMPLE_SEC / max(pace, 1e-7)))
        self.samples.setdefault(name, []).append(self._ask(method, count, warm=pace <= SLOW_SEC))

    def _first(self, method: str) -> float:
        if self.kind not in UNTUNED:
            return self._ask(method, 1, warm=True)
        try:
            return self._ask(method, 1, warm=False, timeout_sec=SLOWEST_SEC)
        except ChildTimedOut as error:
            raise ChildTimedOut(f"over {SLOWEST_SEC:g} s an inference") from error

    def _ask(self, method: str, number: int, *, warm: bool, timeout_sec: float = RUN_SEC) -> float:
        return float(self._child.call(method, {"number": number, "warm": warm}, timeout_sec=timeout_sec))


def time_network(
    files: Mapping[str, Path],
    specs: Sequence[TensorSpec],
    *,
    threads: int,
    folder: Path,
    rounds: int = ROUNDS,
    left_out: Mapping[str, str] | None = None,
    constants: Mapping[str, NDArray[Any]] | None = None,
) -> Timing:
    """Time the available contenders of a network.

    Args:
        files: By kind of `contender_child.KINDS`; ``"onnxruntime"`` and ``"artifact"`` have to be there.
        specs: Of the inputs.
        threads: For each.
        folder: For inputs and outputs.
        rounds: In each, every contender has one sample; another one begins.
        left_out: What is not there, and why, to be told with the rest.
        constants: Inputs that the artifact was compiled for and no longer has; the other contenders get them.

    Raises:
        TunefarmError: If the artifact or ONNX Runtime does not run.
    """
    arrays = dict(zip((spec.name for spec in specs), random_inputs(specs, seed=0), strict=True))
    timing = Timing(left_out=dict(left_out or {}))
    with ExitStack() as stack:
        opened: list[_Turns] = []
        for kind, path in files.items():
            child = stack.enter_context(closing(_child(threads)))
            given = arrays if kind.startswith("artifact") else arrays | dict(constants or {})
            params = _parameters(kind, path, given, threads, folder)
            try:
                child.call("open", params, timeout_sec=OPEN_SEC)
                if kind == "artifact":
                    child.call("outputs", {"path": str(folder / "got.npz")}, timeout_sec=RUN_SEC)
            except (ChildFailed, TunefarmError) as error:
                if kind in ("artifact", "onnxruntime"):
                    raise
                timing.left_out[kind] = error.message
                continue
            opened.append(_Turns(kind, child))
        _take_turns(opened, rounds, timing)
        reference = stack.enter_context(closing(_child(threads)))
        given = arrays | dict(constants or {})
        params = _parameters("reference", files["onnxruntime"], given, threads, folder)
        reference.call("open", params, timeout_sec=OPEN_SEC)
        reference.call("outputs", {"path": str(folder / "wanted.npz")}, timeout_sec=RUN_SEC)
    timing.difference = difference(load_arrays(folder / "got.npz"), load_arrays(folder / "wanted.npz"))
    return timing


def _parameters(
    kind: str, path: Path, inputs: Mapping[str, NDArray[Any]], threads: int, folder: Path
) -> dict[str, Any]:
    """Write a contender's inputs, and return the parameters to open it with."""
    file = folder / f"inputs-{kind}.npz"
    save_arrays(file, list(inputs.values()))
    return {
        "kind": kind,
        "path": str(path.absolute()),
        "names": list(inputs),
        "inputs": str(file),
        "threads": threads,
    }


def _child(threads: int) -> ChildProcess:
    return ChildProcess(
        "benchmarks.models.contender_child",
        limits=ChildLimits(memory_bytes=None),
        access=None,
        env=child_environment(threads),
    )


def _take_turns(opened: list[_Turns], rounds: int, timing: Timing) -> None:
    running = list(opened)
    for number in range(rounds):
        start = number % len(running)
        for turns in [*running[start:], *running[:start]]:
            try:
                turns.turn("sample", turns.kind, number)
                if turns.kind in ("artifact", "onnxruntime"):
                    turns.turn("call_sample", f"{turns.kind}_call", number)
            except (ChildFailed, TunefarmError) as error:
                if turns.kind in ("artifact", "onnxruntime"):
                    raise
                timing.left_out[turns.kind] = error.message
                running.remove(turns)
    for turns in running:
        timing.samples_sec |= turns.samples


def difference(outputs: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> Difference:
    """Return the largest difference over all outputs."""
    largest = relative = 0.0
    for output, reference in zip(outputs, wanted, strict=True):
        values = reference.astype(np.float64)
        apart = float(np.abs(output.astype(np.float64) - values).max(initial=0.0))
        rms = float(np.sqrt(np.mean(values**2))) if values.size else 0.0
        largest = max(largest, apart)
        relative = max(relative, apart / rms if rms else apart)
    return Difference(largest=largest, relative=relative)


def torch_files(path: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return PyTorch's contenders, or why there are none."""
    missing = [name for name in ("torch", "onnx2torch") if importlib.util.find_spec(name) is None]
    if missing:
        why = f"{' and '.join(missing)} not installed"
        return {}, dict.fromkeys(TORCH, why)
    return dict.fromkeys(TORCH, path), {}


def best_onnxruntime(samples_sec: Mapping[str, Iterable[float]]) -> str:
    """Return the faster one of ONNX Runtime's two settings."""
    return min(
        (kind for kind in ONNXRUNTIME if kind in samples_sec), key=lambda kind: median(samples_sec[kind])
    )
