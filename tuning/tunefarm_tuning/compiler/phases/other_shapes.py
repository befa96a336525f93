"""The phase ``other-shapes``: add code for all sizes of the dimensions that the network's file leaves open.

It has default schedules: slower than the code for one set of shapes, but right for all. It is compared with ONNX Runtime in shapes
that have no code of their own, and left out, with the reason in the report, where it is wrong or cannot be built.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.artifact.sizes import condition_text
from tunefarm_tuning.compiler.model_comparison import ModelComparison, compare_model
from tunefarm_tuning.compiler.phases.build_model import BuiltModels
from tunefarm_tuning.compiler.phases.check_model import WRONG_OUTPUT, CheckedModel
from tunefarm_tuning.compiler.phases.load import LoadedModel, OpenCompiler, sets_of
from tunefarm_tuning.compiler.phases.measure import TimedModel
from tunefarm_tuning.compiler.phases.shapes_to_compare import (
    Shapes,
    shapes_beyond_tiles,
    shapes_in_words,
    shapes_to_compare,
    without_refused,
)
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_run import RunFailed
from tunefarm_tuning.process import ChildClosed, ChildFailed, ChildTimedOut
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Model, entry_name
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShapes

_TIMINGS = 5
_LEAST_BUILD_SEC = 120.0
_LEAST_OPTIONAL_SEC = 5.0
_NO_TIME = (
    "the job's time was spent before the code for them was built; a larger budget leaves time for it, and "
    "`tunefarm compile` builds it without a search"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherShapes:
    """The result of the phase ``other-shapes``.

    Attributes:
        library: The library that goes into the artifact.
        entry: The function for all sizes; empty if there is none.
        reason: Why there is none; empty if the file leaves no dimension open, too.
        open_shapes: The shapes that it takes.
        compared: The shapes that were compared, by the inputs' names, each with the comparison.
        latency_sec: Seconds per inference in the main set of shapes.
        output_shapes: Of each output; None stands for a size that differs among `compared`.
    """

    library: Path
    entry: str = ""
    reason: str = ""
    open_shapes: OpenShapes | None = None
    compared: tuple[tuple[Shapes, ModelComparison], ...] = ()
    latency_sec: float | None = None
    output_shapes: tuple[tuple[int | None, ...], ...] = ()

    def to_json(self, model: Model) -> dict[str, Any] | None:
        """Return the report's section; None if the file leaves no dimension open."""
        if self.open_shapes is None:
            return {"entry": None, "reason": self.reason} if self.reason else None
        return {
            "entry": self.entry,
            "reason": None,
            "inputs": [
                {
                    "name": spec.name,
                    "dtype": spec.dtype,
                    "shape": [
                        clean(size.name, 60) if isinstance(size, OpenDimension) else size for size in shape
                    ],
                }
                for spec, shape in zip(model.inputs, self.open_shapes.shapes, strict=True)
            ],
            "outputs": [
                {"name": spec.name, "dtype": spec.dtype, "shape": list(shape)}
                for spec, shape in zip(model.outputs, self.output_shapes, strict=True)
            ],
            "dimensions": [
                {
                    "name": clean(size.name, 60),
                    "multiple": size.multiple,
                    "least": self.open_shapes.minima.get(size.name),
                    "most": self.open_shapes.maxima.get(size.name),
                }
                for size in self.open_shapes.dimensions
            ],
            "conditions": [_clean_condition(condition) for condition in self.open_shapes.conditions],
            "compared": [
                {"inputs": {name: list(shape) for name, shape in shapes.items()}, **comparison.errors()}
                for shapes, comparison in self.compared
            ],
            "latency_sec": self.latency_sec,
        }


def keeps_compiler(request: CompileRequest) -> bool:
    """Return whether this phase uses the compiler of the phases before, which has loaded the network; that of a large file is closed early, for its memory."""
    return _why_never(request) is None and request.may_keep_compiler


def add_other_shapes(
    request: CompileRequest,
    loaded: LoadedModel,
    built: BuiltModels,
    checked: CheckedModel,
    timed: TimedModel,
    open_compiler: OpenCompiler,
) -> OtherShapes:
    """Return the library with a function for all sizes, or as it is and why."""
    reason = _why_none(request, checked, built)
    if reason is not None:
        return OtherShapes(library=timed.library, reason=reason)
    with request.progress.phase("other-shapes"):
        try:
            return _add(request, loaded, built, timed, open_compiler)
        except ChildClosed:
            raise
        except ChildTimedOut as error:
            # What takes longer than all before it takes too long with any budget.
            is_out_of_time = request.optional_sec == 0.0
            return OtherShapes(library=timed.library, reason=_NO_TIME if is_out_of_time else error.message)
        except (ChildFailed, InvalidInputError, InvalidModelError, RunFailed) as error:
            return OtherShapes(library=timed.library, reason=error.message)


def _why_none(request: CompileRequest, checked: CheckedModel, built: BuiltModels) -> str | None:
    """Return why the network gets no code for other shapes: empty if its file leaves no dimension open; None if it may get it."""
    if (reason := _why_never(request)) is not None:
        return reason
    if checked.untuned.unscheduled or built.untuned.unscheduled:
        return "default schedules do not work for this network"
    optional_sec = request.optional_sec
    if optional_sec is not None and optional_sec < _LEAST_OPTIONAL_SEC:
        return _NO_TIME
    return None


def _why_never(request: CompileRequest) -> str | None:
    """Return the reason that is known before anything is compiled, as `_why_none`."""
    model = request.model
    if not any(spec.name in model.binding.shapes for spec in model.inputs):
        return ""
    if not request.other_shapes:
        return "not asked for"
    if request.on_gpu:
        return "there is no such code for GPUs"
    return "ONNX Runtime runs parts of the network" if model.parts else None


def _add(
    request: CompileRequest,
    loaded: LoadedModel,
    built: BuiltModels,
    timed: TimedModel,
    open_compiler: OpenCompiler,
) -> OtherShapes:
    entry = entry_name(len(loaded.info.entries))
    path = request.folder / "model-other-shapes.so"
    tuned = timed.fallback is None and built.is_tuned
    opened = nullcontext(loaded.compiler) if keeps_compiler(request) else open_compiler(request.precision)
    with opened as compiler:
        open_shapes = compiler.load_other_shapes(request.optional_sec)
        request.progress.step(0.2)
        with _expected_meanwhile(request, loaded, open_shapes) as expecting:
            compiler.build_model(
                path,
                built.records if tuned else {},
                built.alternatives.algorithms if tuned else {},
                untuned_entries=tuple(timed.fallen) if tuned else (),
                other_shapes=True,
                timeout_sec=_build_sec(request),
            )
    request.progress.step(0.6)
    expected = expecting.result()
    compared, output_shapes = _compare(request, loaded, path, entry, expected)
    if expected.refused:
        open_shapes = without_refused(
            open_shapes, request.model, expected.refused, [shapes for shapes, _ in compared]
        )
    params = {
        "path": str(path),
        "entry": entry,
        "inputs": str(sets_of(loaded.sets, entry_name(0))[0].inputs),
        "number": 1,
        "repeat": _TIMINGS,
    }
    samples = loaded.runner.call("time_model", params, timeout_sec=request.limits.model_sec)["samples_sec"]
    return OtherShapes(
        library=path,
        entry=entry,
        open_shapes=open_shapes,
        compared=tuple(compared),
        latency_sec=median(float(sample) for sample in samples),
        output_shapes=tuple(map(_common, zip(*output_shapes, strict=True))),
    )


@dataclass(slots=True)
class _Expected:
    """What ONNX Runtime gives in shapes to compare.

    Attributes:
        sets: Input sets with outputs, by the number of their shapes, which it makes seeds and folders of, and by the shapes.
        refused: The shapes that it refuses.
    """

    sets: list[tuple[int, Shapes, Sequence[InputSet]]] = field(default_factory=list)
    refused: list[Shapes] = field(default_factory=list)


@dataclass(slots=True)
class _Meanwhile:
    """What a thread runs while the compiler works: the present reference, and whether nobody waits for it any more."""

    is_over: threading.Event = field(default_factory=threading.Event)
    reference: Reference | None = None

    def end(self) -> None:
        self.is_over.set()
        if self.reference is not None:
            self.reference.close()


@contextmanager
def _expected_meanwhile(
    request: CompileRequest, loaded: LoadedModel, open_shapes: OpenShapes
) -> Iterator[Future[_Expected]]:
    """Have ONNX Runtime run the shapes to compare during the block, in which the compiler works."""
    meanwhile = _Meanwhile()
    with ThreadPoolExecutor(1, "tunefarm-references") as executor:
        try:
            yield executor.submit(
                contextvars.copy_context().run, _expect, request, loaded, open_shapes, meanwhile
            )
        except BaseException:
            meanwhile.end()
            raise


def _expect(
    request: CompileRequest, loaded: LoadedModel, open_shapes: OpenShapes, meanwhile: _Meanwhile
) -> _Expected:
    """Run the shapes to compare in ONNX Runtime."""
    listed, beyond = (
        shapes_to_compare(request.model, open_shapes),
        shapes_beyond_tiles(request.model, open_shapes),
    )
    expected = _Expected(sets=[(0, listed[0], sets_of(loaded.sets, entry_name(0)))])
    to_run = listed[1:] if beyond is None or beyond in listed else [*listed[1:], beyond]
    for number, shapes in enumerate(to_run, start=1):
        meanwhile.reference = _reference(request, loaded, number, shapes)
        if meanwhile.is_over.is_set():
            break
        try:
            expected.sets.append((number, shapes, _run(request, meanwhile.reference, number)))
        except InvalidModelError as error:
            # Much larger sizes may be more than the network has positions for.
            if error.code == "reference-failed" and shapes in listed:
                expected.refused.append(shapes)
    return expected


def _reference(request: CompileRequest, loaded: LoadedModel, number: int, shapes: Shapes) -> Reference:
    return loaded.references.of_model(_in_shapes(request.model, shapes), f"other-shapes-{number}")


def _run(request: CompileRequest, reference: Reference, number: int) -> list[InputSet]:
    return reference.make(request.seed + number, thorough=False, narrow=request.precision.narrow_factors)


def _compare(
    request: CompileRequest, loaded: LoadedModel, path: Path, entry: str, expected: _Expected
) -> tuple[list[tuple[Shapes, ModelComparison]], list[list[tuple[int, ...]]]]:
    """Compare a library's function for all sizes with what is expected.

    Returns:
        The shapes that were compared, each with the comparison; and the outputs' shapes in each.

    Raises:
        InvalidModelError: wrong-output.
    """
    compared: list[tuple[Shapes, ModelComparison]] = []
    output_shapes: list[list[tuple[int, ...]]] = []
    rounding = loaded.sets[0].rounding

    def compare(sets: Sequence[InputSet]) -> ModelComparison:
        own_sets = [replace(input_set.with_rounding(rounding), entry=entry) for input_set in sets]
        return compare_model(loaded.runner, path, request.output_names, own_sets, request.limits)

    for number, shapes, given_sets in expected.sets:
        sets, comparison = given_sets, compare(given_sets)
        if number and not comparison.ok:
            # Beside the compiler there may have been no time to find out how far the outputs move.
            sets = _run(request, _reference(request, loaded, number, shapes), number)
            comparison = compare(sets)
        if not comparison.ok:
            raise InvalidModelError(
                f"its results are wrong with the shapes {shapes_in_words(shapes)}: {comparison.message}",
                code=WRONG_OUTPUT,
            )
        compared.append((shapes, comparison))
        output_shapes.append([array.shape for array in load_arrays(sets[0].expected)])
    return compared, output_shapes


def _build_sec(request: CompileRequest) -> float:
    """Return how long the build may take: as long as all before it, but not so long that the caller stops the compile, nor beyond its goal.

    Some kernels of open sizes, which divide by them, take TVM and LLVM minutes.
    """
    elapsed_sec, whole_sec = request.progress.elapsed_sec, request.limits.whole_sec
    build_sec = max(_LEAST_BUILD_SEC, elapsed_sec)
    if request.optional_sec is not None:
        build_sec = min(build_sec, request.optional_sec)
    return build_sec if whole_sec is None else min(build_sec, (whole_sec - elapsed_sec) / 3)


def _clean_condition(condition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a condition with the names of dimensions that are those in the report, and its text."""
    cleaned = {**condition, "size": _clean_names(condition["size"]), "of": _clean_names(condition["of"])}
    return {**cleaned, "text": condition_text(cleaned)}


def _clean_names(size: Any) -> Any:
    if isinstance(size, list):
        return [size[0], *map(_clean_names, size[1:])]
    return clean(size, 60) if isinstance(size, str) else size


def _common(shapes: Sequence[tuple[int, ...]]) -> tuple[int | None, ...]:
    """Return a shape with the sizes that are the same in all, None for the others."""
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))


def _in_shapes(model: Model, shapes: Shapes) -> Model:
    """Return the model in other shapes. Those of its outputs are not known."""
    return replace(
        model,
        binding=Binding(
            shapes={name: shapes[name] for name in model.binding.shapes}, values=model.binding.values
        ),
        inputs=tuple(replace(spec, shape=shapes[spec.name]) for spec in model.inputs),
        specialisations=(),
    )
