"""The phase ``check-model``: compare the network with ONNX Runtime, and fall back to a network that is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tunefarm_tuning.compiler.model_comparison import (
    LARGEST_WIDTH,
    ModelComparison,
    compare_as_model,
    compare_model,
    wrong_because,
)
from tunefarm_tuning.compiler.phases.build_model import BuiltModels, Fallback
from tunefarm_tuning.compiler.phases.load import LoadedModel, OpenCompiler
from tunefarm_tuning.compiler.phases.partly_untuned import build_partly_untuned
from tunefarm_tuning.compiler.phases.segments_check import SegmentsCheck, check_segments
from tunefarm_tuning.compiler.phases.untuned import UntunedModel
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.measure.device_run import RunFailed
from tunefarm_tuning.process.model_child import compiling
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.reference.comparison import STEPS
from tunefarm_tuning.workload.precision import Precision

WRONG_OUTPUT = "wrong-output"
"""The code of the error of a network whose outputs are wrong."""
_MUCH = 0.02
"""A mean error, as a share of the root mean square, that a user of fewer bits should know of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """The result of the phase ``check-model``: a network whose outputs are right.

    Attributes:
        library: The tuned network if its outputs are right, else the untuned one.
        untuned: The network to fall back to.
        as_model: The outputs of the network with weights as in the model's file; None if not asked for, or if it failed.
        parts: The check of its segments; None if its outputs tell enough.
        fallen: Why the tuned kernels are left out in some of the library's functions, by their names.
    """

    library: Path
    comparison: ModelComparison
    untuned: UntunedModel
    as_model: ModelComparison | None = None
    fallback: Fallback | None = None
    warnings: tuple[str, ...] = ()
    segments: SegmentsCheck | None = None
    fallen: Mapping[str, Fallback] = field(default_factory=dict)


def check_model(
    request: CompileRequest, loaded: LoadedModel, built: BuiltModels, open_compiler: OpenCompiler
) -> CheckedModel:
    """Compare the outputs of the tuned network with the reference, and of the untuned network if those are wrong.

    Raises:
        InvalidModelError: If the network is wrong, or does not run, even untuned.
    """
    with request.progress.phase("check-model"):
        fallback = built.fallback
        tuned = check_tuned(request, loaded, built, open_compiler) if built.is_tuned else None
        if isinstance(tuned, CheckedModel):
            checked = tuned
        else:
            if tuned is not None:
                request.progress.step(0.5)
            checked = check_untuned(request, loaded, built.untuned, open_compiler)
            fallback = fallback or tuned
        checked = confirmed(request, loaded, checked, open_compiler)
        as_model = None
        if request.precision is not Precision.AS_MODEL:
            with open_compiler(Precision.AS_MODEL) as compiler:
                as_model = compare_as_model(
                    compiler,
                    loaded.runner,
                    request.folder / "model-as-it-is.so",
                    request.output_names,
                    loaded.sets,
                    request.limits,
                )
            checked = _with_accuracy(request, checked)
    return replace(checked, as_model=as_model, fallback=fallback)


def _with_accuracy(request: CompileRequest, checked: CheckedModel) -> CheckedModel:
    """Return the network, with a warning if its format of weights or products costs much accuracy.

    Raises:
        InvalidModelError: too-inaccurate, if it costs more than the user allows.
    """
    error = (checked.comparison.on_samples() or checked.comparison).errors()["mean_rel_error"]
    if request.max_error is not None and error > request.max_error:
        raise InvalidModelError(
            f"with precision {request.precision.value} the outputs are off by {error:.2g} of their root mean square, and "
            f"{request.max_error:g} was asked for: allow a larger error, or choose another precision",
            code="too-inaccurate",
            error=error,
            max_error=request.max_error,
        )
    if error <= _MUCH:
        return checked
    warning = (
        f"the rounding of precision {request.precision.value} adds up along this network: outputs are off by {error:.2g} of their "
        "root mean square in the mean. Give samples (--inputs) to see what it does to them, bound it (--max-error), or keep as-model"
    )
    return replace(checked, warnings=(*checked.warnings, warning))


def check_tuned(
    request: CompileRequest, loaded: LoadedModel, built: BuiltModels, open_compiler: OpenCompiler
) -> CheckedModel | Fallback:
    """Compare the tuned network's outputs with the reference; return why it cannot be used if they are wrong.

    If they are wrong in some of several sets of shapes, the network is untuned in these.
    """
    try:
        comparison = compare_model(
            loaded.runner, built.tuned, request.output_names, loaded.sets, request.limits
        )
    except RunFailed as error:
        return Fallback(reason=MissReason.CRASHED, message=f"the tuned network: {error.message}")
    checked = CheckedModel(library=built.tuned, comparison=comparison, untuned=built.untuned)
    if comparison.ok:
        return checked
    excused = excused_by_segments(request, loaded, checked, open_compiler)
    if excused is not None:
        return excused
    fallen = {
        entry: Fallback(
            reason=MissReason.WRONG_ANSWER, message=f"the tuned network: {comparison.of_entry(entry).message}"
        )
        for entry in sorted(comparison.wrong_entries)
    }
    partly = build_partly_untuned(request, loaded, built, fallen, open_compiler)
    if partly is not None:
        return replace(checked, library=partly[0], comparison=partly[1], fallen=fallen)
    return Fallback(reason=MissReason.WRONG_ANSWER, message=f"the tuned network: {comparison.message}")


def check_untuned(
    request: CompileRequest, loaded: LoadedModel, untuned: UntunedModel, open_compiler: OpenCompiler
) -> CheckedModel:
    """Compare the untuned network's outputs; build it with unscheduled loops if its default schedules are wrong."""
    untuned.build()  # if it takes too long, unscheduled loops would, too
    try:
        comparison = _run_untuned(request, loaded, untuned.library)
        checked = CheckedModel(library=untuned.library, comparison=comparison, untuned=untuned)
        if comparison.ok:
            return checked
        excused = (
            None if untuned.unscheduled else excused_by_segments(request, loaded, checked, open_compiler)
        )
        if excused is not None:
            return excused
        raise _wrong(request, loaded, comparison)
    except InvalidModelError as error:
        if untuned.unscheduled:
            raise located(request, loaded, open_compiler, error) from error
        warning = f"default schedules were left out, unscheduled loops are slow: {error.message}"
    path = request.folder / "model-unscheduled.so"
    with compiling("compiling the model"), open_compiler(request.precision) as compiler:
        compiler.build_model(path, {}, default_schedules=False)
    try:
        comparison = _compare_untuned(request, loaded, path)
    except InvalidModelError as error:
        raise located(request, loaded, open_compiler, error) from error
    untuned = UntunedModel(library=path, unscheduled=True)
    return CheckedModel(library=path, comparison=comparison, untuned=untuned, warnings=(warning,))


def confirmed(
    request: CompileRequest, loaded: LoadedModel, checked: CheckedModel, open_compiler: OpenCompiler
) -> CheckedModel:
    """Check a right network segment by segment, too, if its outputs alone would not show a fault.

    They do not if they hide one in saturated or normalised values, if they move too far in ONNX Runtime itself, or if the network rounds
    its activations: a tie then moves them as far as a fault.

    Raises:
        InvalidModelError: wrong-output, if a segment is wrong; too-sensitive, if neither outputs nor segments can be compared.
    """
    runs = loaded.runs
    blind = runs is not None and runs["noticed"] < runs["probes"]
    loose = runs is not None and checked.comparison.says_nothing
    rounds = any(given.rounding == STEPS for given in loaded.sets)
    if not (blind or loose or rounds) or checked.segments is not None:
        return checked
    if loose and request.model.parts:  # its segments are not compared: fixed shares have to do
        by_shares = replace(loaded, sets=tuple(replace(given, widths=None) for given in loaded.sets))
        comparison = _run_untuned(request, by_shares, checked.library)
        if comparison.ok:
            return replace(checked, comparison=comparison)
    segments = _compared_segments(request, loaded, open_compiler)
    if segments.wrong is not None:
        raise InvalidModelError(
            "the model's outputs are those of ONNX Runtime, but they hide a fault: compiled without any tuning, "
            f"{segments.wrong.message}",
            code=WRONG_OUTPUT,
            checks={**checked.comparison.to_json(), "parts": segments.to_json()},
        )
    if loose and segments.not_checked:
        raise InvalidModelError(
            "the model is too sensitive to rounding to be checked: if ONNX Runtime itself adds in another order, the outputs change by "
            f"{checked.comparison.moved:.0%} of their root mean square on every set of inputs "
            f"(the limit is {LARGEST_WIDTH:.0%}), and the model's segments cannot be compared: {segments.not_checked}",
            code="too-sensitive",
            checks={**checked.comparison.to_json(), "parts": segments.to_json()},
        )
    return replace(checked, segments=segments)


def excused_by_segments(
    request: CompileRequest, loaded: LoadedModel, checked: CheckedModel, open_compiler: OpenCompiler
) -> CheckedModel | None:
    """Return a network that rounds, wrong on some inputs and right on others, as right if each of its segments is; None otherwise.

    Which of several sums is a tie depends on the inputs, and five runs of ONNX Runtime do not meet all ties. A network of which ONNX Runtime
    runs parts is not cut further: that it is right on other inputs is enough, since a fault is there on these, too.
    """
    if not checked.comparison.may_be_ties:
        return None
    segments = _compared_segments(request, loaded, open_compiler)
    if segments.wrong is not None or (segments.not_checked and not request.model.parts):
        return None
    warning = (
        f"on some inputs, ties of rounding move outputs beyond their tolerance ({checked.comparison.message}); "
        + (
            f"on other inputs they are correct. The network was not compared segment by segment: {segments.not_checked}"
            if segments.not_checked
            else f"each of its {segments.count} segments was compared by itself, and is correct"
        )
    )
    comparison = replace(checked.comparison, excused=True)
    return replace(checked, comparison=comparison, segments=segments, warnings=(*checked.warnings, warning))


def _compared_segments(
    request: CompileRequest, loaded: LoadedModel, open_compiler: OpenCompiler
) -> SegmentsCheck:
    segments = check_segments(request, loaded, open_compiler, loaded.sets[0])
    if segments.wrong is not None and len(loaded.sets) > 1:
        # A tie within a segment may go either way; a fault is there on other inputs, too.
        again = check_segments(request, loaded, open_compiler, loaded.sets[1], among=segments.departing)
        segments = segments if again.not_checked else again
    return segments


def _compare_untuned(request: CompileRequest, loaded: LoadedModel, untuned: Path) -> ModelComparison:
    comparison = _run_untuned(request, loaded, untuned)
    if not comparison.ok:
        raise _wrong(request, loaded, comparison)
    return comparison


def _run_untuned(request: CompileRequest, loaded: LoadedModel, untuned: Path) -> ModelComparison:
    try:
        return compare_model(loaded.runner, untuned, request.output_names, loaded.sets, request.limits)
    except RunFailed as error:
        raise does_not_run(error) from error


def _wrong(request: CompileRequest, loaded: LoadedModel, comparison: ModelComparison) -> InvalidModelError:
    return InvalidModelError(
        f"compiled without any tuning, the model gives other results than ONNX Runtime: {comparison.message}"
        f"{wrong_because(request.precision, loaded.info.storage)}",
        code=WRONG_OUTPUT,
        checks=comparison.to_json(),
    )


def located(
    request: CompileRequest, loaded: LoadedModel, open_compiler: OpenCompiler, error: InvalidModelError
) -> InvalidModelError:
    """Return the error of a network with wrong outputs, with the first segment that is wrong by itself."""
    if error.code != WRONG_OUTPUT:
        return error
    wrong_sets = error.fields["checks"]["input_sets"]
    input_set = next(
        (
            input_set
            for input_set, json in zip(loaded.sets, wrong_sets, strict=True)
            if not all(output["ok"] for output in json["outputs"])
        ),
        loaded.sets[0],
    )
    segments = check_segments(request, loaded, open_compiler, input_set, unscheduled=True)
    if segments.wrong is not None:
        where = segments.wrong.message
    elif segments.not_checked:
        where = f"which segment is wrong could not be found: {segments.not_checked}"
    else:
        where = f"each of its {segments.count} segments is right by itself: {_whole_alone(request.precision)}"
    return InvalidModelError(
        f"{error.message}; {where}",
        code=error.code,
        checks={**error.fields["checks"], "parts": segments.to_json()},
    )


def _whole_alone(precision: Precision) -> str:
    """Return why a network can be wrong of which each segment is right."""
    if precision.multiplies:
        return (
            f"the rounding of {precision} may add up along this network, or the fault is in how the segments are joined; "
            "--precision as-model compiles it without the rounding"
        )
    return "the fault is in how they are joined"


def does_not_run(error: RunFailed) -> InvalidModelError:
    """Return the error of a compile whose network does not run even untuned."""
    message = f"the compiled model does not run: {error.message}"
    return InvalidModelError(message, code="run-failed", cause=error.code)
