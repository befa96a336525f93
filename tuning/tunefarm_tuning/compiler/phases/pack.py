"""The phase ``pack``: write manifest, report, records and library to one file, the artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.pack import pack
from tunefarm_tuning.compiler.alternatives import SelectedAlternatives
from tunefarm_tuning.compiler.artifact_comparison import artifact_check
from tunefarm_tuning.compiler.kernel_validation import CheckedKernel, missed
from tunefarm_tuning.compiler.model_comparison import (
    ModelComparison,
    precision_report,
    rounding_of,
    storage_warnings,
)
from tunefarm_tuning.compiler.phases.build_model import BuiltModels, Fallback
from tunefarm_tuning.compiler.phases.check_kernels import CheckedKernels
from tunefarm_tuning.compiler.phases.check_model import CheckedModel
from tunefarm_tuning.compiler.phases.load import LoadedModel
from tunefarm_tuning.compiler.phases.manifest import make_manifest
from tunefarm_tuning.compiler.phases.measure import TimedModel
from tunefarm_tuning.compiler.phases.other_shapes import OtherShapes
from tunefarm_tuning.compiler.phases.prove_batches import ProvedBatches
from tunefarm_tuning.compiler.phases.segments_check import SegmentsCheck
from tunefarm_tuning.compiler.phases.shape_reports import shape_reports
from tunefarm_tuning.compiler.report import (
    Environment,
    KernelEvidence,
    LatencyEvidence,
    OutputEvidence,
    make_report,
    why_no_baseline,
)
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.compiler.runtime_parts import parts_report, random_warning, unforced_warning
from tunefarm_tuning.compiler.session import EntryInfo
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.gpu.baseline import ONNXRUNTIME, TORCH_COMPILE
from tunefarm_tuning.process import EarlyChild
from tunefarm_tuning.workload.model import Model, entry_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A written artifact.

    Attributes:
        path: The ``.tunefarm`` file.
        manifest: The facts about it, as in the file: model, target, versions, records, checksums.
        report: The evidence, as in the file: coverage, checks, latency, fallbacks, versions.
    """

    path: Path
    manifest: Mapping[str, Any]
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResults:
    """The results of all phases before this one; `proved` are the batches of each of the library's functions."""

    loaded: LoadedModel
    checked_kernels: CheckedKernels
    built: BuiltModels
    checked: CheckedModel
    timed: TimedModel
    proved: Mapping[str, ProvedBatches]
    others: OtherShapes


def write_artifact(
    request: CompileRequest, results: PhaseResults, output: Path, early: EarlyChild | None = None
) -> Artifact:
    """Write manifest, report, records and library to one file, once that file's outputs are right; `early` may check them."""
    loaded, timed, library = results.loaded, results.timed, results.others.library
    alternatives = results.built.alternatives
    if timed.fallback is not None:
        alternatives = alternatives.withdrawn(timed.fallback.message)
    kernels = _kernel_evidence(results, alternatives)
    report = _report(request, results, kernels)
    manifest = make_manifest(
        name=request.name,
        model=request.model,
        target=request.target,
        loaded=loaded.info,
        library=library,
        device_model=request.device_model,
        checked_here=request.here,
        threads=loaded.threads,
        records=kernels.used,
        report=report,
        kernel_libraries=alternatives.kernel_libraries,
        rounding=rounding_of(request.precision, loaded.info.storage),
    )
    check = None
    if request.here or request.on_gpu:
        # Check the file as its user runs it: by its own loader, in a new process.
        runner = None if request.here else loaded.runner
        sets = timed.comparison.right_sets if timed.comparison.excused else loaded.sets
        check = artifact_check(sets, request.limits, request.cancellation, runner, early)
    complete = pack(
        output,
        library=library,
        manifest=manifest,
        report=report,
        records=[record for _, record in kernels.used],
        parts=loaded.info.parts,
        check=check,
    )
    request.history.coverage = kernels.coverage
    return Artifact(path=output, manifest=complete, report=report)


def _kernel_evidence(results: PhaseResults, alternatives: SelectedAlternatives) -> KernelEvidence:
    direct, info, timed = results.checked_kernels.direct, results.loaded.info, results.timed
    kernels = final_kernels(direct, alternatives, timed.fallback)
    return KernelEvidence(
        kernels=without_unused(kernels, info.entries, timed.fallen),
        not_tunable=info.not_tunable,
        alternatives=alternatives.to_json(),
        replaced=alternatives.replaced(direct),
    )


def _report(request: CompileRequest, results: PhaseResults, kernels: KernelEvidence) -> dict[str, Any]:
    loaded, checked, timed = results.loaded, results.checked, results.timed
    main = timed.main
    no_baseline = why_no_baseline(wanted=request.baseline, here=request.here)
    if request.on_gpu:
        no_baseline = timed.not_timed.get(ONNXRUNTIME, "")
    return make_report(
        kernels=kernels,
        outputs=OutputEvidence(
            comparison=timed.comparison,
            runs=loaded.runs,
            segments=None if checked.segments is None else checked.segments.to_json(),
            samples=loaded.samples,
        ),
        latencies=LatencyEvidence(
            latency=timed.latency,
            rejected=main.rejected,
            alone=None if main.alone is None else main.alone.to_json(),
            no_baseline=no_baseline,
            no_torch_compile=timed.not_timed.get(TORCH_COMPILE, ""),
            baselines={name: facts.to_json() for name, facts in main.baselines.items()},
        ),
        environment=Environment(
            device_model=request.device_model,
            this_machine=request.here,
            threads=loaded.threads,
            seed=request.seed,
        ),
        warnings=_warnings(request, results),
        phases_sec=request.progress.phases_sec,
        baselines_sec=timed.baselines_sec,
        precision=precision_report(
            request.precision,
            loaded.info.storage,
            timed.comparison,
            checked.as_model,
            request.model.quantisation,
        ),
        shapes=shape_reports(request.model, loaded.info, timed.entries, timed.comparison, results.proved),
        other_shapes=results.others.to_json(request.model),
        hybrid=parts_report(request.model.parts, timed.parts),
        reused=request.history.findings.reused,
        before=None if main.before is None else main.before.to_json(),
    )


def final_kernels(
    direct: Sequence[CheckedKernel], alternatives: SelectedAlternatives, fallback: Fallback | None
) -> list[CheckedKernel]:
    """Return the kernels of the network that goes into the artifact: all untuned if it fell back."""
    if fallback is None:
        return alternatives.kernels(direct)
    return [
        kernel
        if kernel.miss
        else replace(kernel, miss=missed(kernel.task, fallback.reason, fallback.message))
        for kernel in direct
    ]


def comparison_warnings(comparison: ModelComparison, segments: SegmentsCheck | None) -> list[str]:
    """Return sentences on outputs whose comparison says little."""
    warnings = []
    if all(output.comparable == 0 for output in comparison.outputs):
        warnings.append("no output had a finite number: the comparison says little")
    elif comparison.says_nothing:
        warnings.append(
            f"outputs change by {comparison.moved:.2g} of their root mean square if ONNX Runtime itself adds in another order, on every "
            "set of inputs: the comparison says little"
        )
    if segments is not None and segments.not_checked:
        warnings.append(
            "a fault in some layers would not show in the outputs, and its segments could not be compared: "
            f"{segments.not_checked}"
        )
    return warnings


def without_unused(
    kernels: Sequence[CheckedKernel], entries: Sequence[EntryInfo], fallen: Mapping[str, Fallback]
) -> list[CheckedKernel]:
    """Return the kernels, as misses those that only functions without tuned kernels call."""
    used: set[str] = set().union(*(entry.kernels for entry in entries if entry.name not in fallen))
    reasons = {
        name: fallen[entry.name] for entry in entries if entry.name in fallen for name in entry.kernels
    }
    result = []
    for kernel in kernels:
        # Kernels of alternatives are in no function's list: they replace kernels that are.
        reason = next((reasons[name] for name in kernel.task.names if name in reasons), None)
        if reason is not None and not kernel.miss and not used.intersection(kernel.task.names):
            kernel = replace(kernel, miss=missed(kernel.task, reason.reason, reason.message))
        result.append(kernel)
    return result


def _warnings(request: CompileRequest, results: PhaseResults) -> list[str]:
    loaded, checked, timed, others = results.loaded, results.checked, results.timed, results.others
    warnings = list(loaded.warnings)
    if timed.fallback is not None:
        warnings += results.built.warnings_of(timed.fallback)
    warnings += [*checked.warnings, *timed.warnings]
    shapes = {entry_name(number): _shapes_text(each) for number, each in enumerate(request.model.each)}
    warnings += [
        f"{_with_shapes(shapes, entry)}the timings of the whole network do not tell whether the tuned kernels make it faster; "
        f"they were kept, since {timing.alone}"
        for entry, timing in timed.entries.items()
        if timing.alone is not None and timing.fallback is None
    ]
    if timed.fallback is None:
        warnings += [
            f"{_with_shapes(shapes, entry)}{warning}"
            for entry, fallback in timed.fallen.items()
            for warning in results.built.warnings_of(fallback)
        ]
    if timed.comparison.unforced:
        warnings.append(unforced_warning(timed.comparison.unforced))
    if timed.comparison.random_parts:
        warnings.append(random_warning(timed.comparison.random_parts))
    if timed.parts is not None and timed.parts.missing:
        warnings.append(
            f"ONNX Runtime's parts of the network were not timed on the device: {timed.parts.missing}"
        )
    if others.reason and request.other_shapes:
        warnings.append(
            f"the artifact runs only the shapes that it was compiled for; no code for others: {others.reason}"
        )
    warnings += comparison_warnings(timed.comparison, checked.segments)
    return warnings + storage_warnings(request.precision, loaded.info.storage)


def _with_shapes(shapes: Mapping[str, str], entry: str) -> str:
    return f"with the shapes {shapes[entry]}, " if len(shapes) > 1 else ""


def _shapes_text(model: Model) -> str:
    return ", ".join(f"{clean(spec.name, 60)} {list(spec.shape)}" for spec in model.inputs)
