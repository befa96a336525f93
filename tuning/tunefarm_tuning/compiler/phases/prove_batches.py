"""Prove which smaller batches may run in a larger one, filled up with copies of a sample.

A network may mix the samples of a batch, or compute with the batch's size. So it is tried: a smaller batch is filled up and run, and its
outputs are compared with those of ONNX Runtime for the smaller batch; then with other samples in the other places, which must not
change a bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.compiler.phases.load import LoadedModel, sets_of
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.measure.device_run import RunFailed, outputs_folder
from tunefarm_tuning.reference.comparison import compare_outputs
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Model, entry_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedBatches:
    """The smaller batches that run in one of the library's functions.

    Attributes:
        batches: Their sizes.
        tried: The sizes that were run; the others lie between them.
        reason: Why there are none though the user may run them; empty if there are.
    """

    batches: tuple[int, ...] = ()
    tried: tuple[int, ...] = ()
    reason: str = ""


def prove_batches(request: CompileRequest, loaded: LoadedModel, library: Path) -> dict[str, ProvedBatches]:
    """Return the smaller batches that run in each of a library's functions, by their names."""
    models = request.model.each
    proved: dict[str, ProvedBatches] = {}
    for number, model in enumerate(models):
        sizes = _smaller_batches(model, models, request.model.least_batch)
        if not request.model.specialisations or not sizes:
            continue
        entry = entry_name(number)
        # The ends and the middle.
        tried = tuple(sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]}))
        reason = next(filter(None, (_why_not(request, loaded, library, number, size) for size in tried)), "")
        proved[entry] = ProvedBatches(batches=() if reason else sizes, tried=tried, reason=reason)
    return proved


def batch_of(model: Model) -> int | None:
    """Return the first dimension of all inputs and outputs; None if they do not have the same, or the file fixes it."""
    shapes: list[tuple[int | None, ...]] = [spec.shape for spec in model.inputs]
    shapes += [spec.shape for spec in model.outputs]
    sizes = {shape[0] if shape else 0 for shape in shapes}
    is_open = all(spec.name in model.binding.shapes for spec in model.inputs)
    return (sizes.pop() or None) if is_open and len(sizes) == 1 and model.inputs else None


def _smaller_batches(model: Model, models: Sequence[Model], least: int) -> tuple[int, ...]:
    """Return the batch sizes below a model's, down to the next smaller one that has code of its own."""
    batch = batch_of(model)
    if batch is None:
        return ()
    below = [
        other_batch
        for other in models
        if _samples(other) == _samples(model) and (other_batch := batch_of(other)) and other_batch < batch
    ]
    return tuple(range(max([least - 1, *below]) + 1, batch))


def _samples(model: Model) -> list[tuple[int, ...]]:
    return [spec.shape[1:] for spec in model.inputs]


def _why_not(request: CompileRequest, loaded: LoadedModel, library: Path, number: int, size: int) -> str:
    """Return why a batch of this size cannot be filled up; empty if it can."""
    model, entry = request.model.each[number], entry_name(number)
    small = replace(
        model,
        binding=Binding(
            shapes={name: (size, *shape[1:]) for name, shape in model.binding.shapes.items()},
            values=model.binding.values,
        ),
        inputs=tuple(replace(spec, shape=(size, *spec.shape[1:])) for spec in model.inputs),
        outputs=tuple(replace(spec, shape=(size, *spec.shape[1:])) for spec in model.outputs),
    )
    request.progress.step(1.0)
    try:
        small_sets = loaded.references.of_model(small, f"{entry}-batch-{size}").make(request.seed + 100)
    except InvalidModelError as error:
        return f"ONNX Runtime cannot run batch {size}: {error.message}"
    for small_set, full_set in zip(small_sets, sets_of(loaded.sets, entry), strict=False):
        try:
            reason = _differs(request, loaded, library, model, small_set, full_set)
        except (RunFailed, InvalidInputError) as error:
            return f"batch {size} does not run when it is filled up: {error.message}"
        if reason:
            return f"batch {size}: {reason}"
    return ""


def _differs(
    request: CompileRequest,
    loaded: LoadedModel,
    library: Path,
    model: Model,
    small_set: InputSet,
    full_set: InputSet,
) -> str:
    samples, others = load_arrays(small_set.inputs), load_arrays(full_set.inputs)
    size, batch = len(samples[0]), len(others[0])
    filled = [np.concatenate([array, np.repeat(array[-1:], batch - size, axis=0)]) for array in samples]
    among_others = [
        np.concatenate([array, other[: batch - size]]) for array, other in zip(samples, others, strict=True)
    ]
    first = _run(request, loaded, library, full_set.entry, filled)
    second = _run(request, loaded, library, full_set.entry, among_others)
    if any(not len(output) for output in first):
        return "an output has no samples"
    expected = load_arrays(small_set.expected)
    names = [spec.name for spec in model.outputs]
    comparisons = compare_outputs(
        names,
        [output[:size] for output in first],
        expected,
        rounding=small_set.with_rounding(full_set.rounding).rounding,
    )
    wrong = next((comparison for comparison in comparisons if not comparison.ok), None)
    if wrong is not None:
        return f"output {wrong.name!r} differs from the output of the batch by itself: {wrong.message}"
    mixed = [
        name
        for name, alone, other in zip(names, first, second, strict=True)
        if alone[:size].tobytes() != other[:size].tobytes()
    ]
    return f"output {mixed[0]!r} depends on the other samples of the batch" if mixed else ""


def _run(
    request: CompileRequest, loaded: LoadedModel, library: Path, entry: str, arrays: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:
    inputs, outputs = request.folder / "batch-inputs.npz", outputs_folder(request.folder) / "batch.npz"
    save_arrays(inputs, arrays)
    params: Mapping[str, str] = {
        "path": str(library), "entry": entry, "inputs": str(inputs), "outputs": str(outputs)
    }  # fmt: skip
    loaded.runner.call("run_model", params, timeout_sec=request.limits.model_sec)
    return load_arrays(outputs)
