"""The phase ``measure``: time the network beside the untuned one and the baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tunefarm_text.quantities import seconds
from tunefarm_tuning.compiler.model_comparison import ModelComparison
from tunefarm_tuning.compiler.model_timing import compare_latency
from tunefarm_tuning.compiler.phases.build_model import Fallback
from tunefarm_tuning.compiler.phases.check_model import CheckedModel, check_untuned, does_not_run
from tunefarm_tuning.compiler.phases.load import LoadedModel, OpenCompiler
from tunefarm_tuning.compiler.report import why_no_baseline
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.device_run import RunFailed
from tunefarm_tuning.measure.gpu.baseline import budget_sec, time_baselines
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.reference.onnx_runtime import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModel:
    """The result of the phase ``measure``: the network that goes into the artifact.

    Attributes:
        latency: By name: ``"tuned"`` is `library`, ``"untuned"``, and the baselines that were timed.
        rejected: The latency of a tuned network that was slower than the untuned one.
        not_timed: Why a GPU's baseline was not timed, by its name.
    """

    library: Path
    comparison: ModelComparison
    latency: Mapping[str, Latency]
    rejected: Latency | None = None
    not_timed: Mapping[str, str]
    fallback: Fallback | None = None
    warnings: tuple[str, ...] = ()


def time_model(
    request: CompileRequest, loaded: LoadedModel, checked: CheckedModel, open_compiler: OpenCompiler
) -> TimedModel:
    """Time the network beside the untuned one and the baselines; fall back to the untuned one if that is faster.

    Raises:
        InvalidModelError: If the untuned network does not run, or is wrong when it is needed as a fallback.
    """
    with request.progress.phase("measure"):
        use_reference = request.baseline and request.here and not request.on_gpu
        reference = loaded.reference if use_reference else None
        timed = _time(request, loaded, checked, reference)
        if timed.library != checked.library:
            fallen = check_untuned(request, loaded, checked.untuned, checked.plain, open_compiler)
            timed = replace(
                timed,
                library=fallen.library,
                comparison=fallen.comparison,
                warnings=(*timed.warnings, *fallen.warnings),
            )
            if fallen.library != checked.untuned:  # its unscheduled loops were not timed yet
                timed = replace(timed, latency=_time(request, loaded, fallen, reference).latency)
        if not request.on_gpu:
            return timed
        latency, not_timed = time_baselines(
            request.model,
            loaded.sets[0].inputs,
            why_no_baseline(wanted=request.baseline, here=True),
            budget_sec(request.limits.whole_sec, request.progress.elapsed_sec),
            request.cancellation,
            loaded.runner if request.device is not None else None,
        )
        return replace(timed, latency={**timed.latency, **latency}, not_timed=not_timed)


def _time(
    request: CompileRequest, loaded: LoadedModel, checked: CheckedModel, reference: Reference | None
) -> TimedModel:
    """Time a network beside the untuned one; return that one, with the reason, if the network crashes or is slower."""
    library, untuned = checked.library, checked.untuned
    libraries = {"untuned": untuned} if library == untuned else {"tuned": library, "untuned": untuned}
    try:
        latency, slower = compare_latency(
            loaded.runner,
            libraries,
            reference,
            loaded.sets[0].inputs,
            threads=loaded.threads,
            limits=request.limits,
            on_round=request.progress.step,
        )
    except RunFailed as error:
        if library == untuned:
            raise does_not_run(error) from error
        fallback = Fallback(
            reason=MissReason.CRASHED, message=f"the tuned network, while it was timed: {error.message}"
        )
        return _time(request, loaded, replace(checked, library=untuned, fallback=fallback), reference)
    tuned = latency.setdefault("tuned", latency["untuned"])
    timed = TimedModel(
        library=library,
        comparison=checked.comparison,
        latency=latency,
        not_timed={},
        fallback=checked.fallback,
    )
    if not slower:
        return timed
    return replace(
        timed,
        library=untuned,
        latency={**latency, "tuned": latency["untuned"]},
        rejected=tuned,
        fallback=Fallback(
            reason=MissReason.SLOWER_THAN_UNTUNED,
            message=f"the whole network: {seconds(tuned.median_sec)} tuned, "
            f"{seconds(latency['untuned'].median_sec)} untuned",
        ),
    )
