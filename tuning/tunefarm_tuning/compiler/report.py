"""The report of an artifact, as JSON: the evidence in full."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tunefarm_tuning.compiler.kernel_validation import CheckedKernel
from tunefarm_tuning.compiler.model_comparison import ModelComparison
from tunefarm_tuning.compiler.model_timing import METHOD as MODEL_METHOD
from tunefarm_tuning.compiler.session import KernelInfo, UntunableKernel
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.core.ratio import speedups
from tunefarm_tuning.measure.kernel_timing import METHOD as KERNEL_METHOD
from tunefarm_tuning.records.coverage import Coverage
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.samples import SampleSummary
from tunefarm_tuning.target.toolchain import versions
from tunefarm_tuning.workload.precision import Precision

REPORT_VERSION = 2
_RULE = (
    "floats: an element may differ from the reference by the largest of three bounds: 64 times the largest error of ONNX Runtime's own "
    "runs in the row, column or channel of the element where it is smallest; 16 times their largest error in the whole output; 64 "
    "roundings of the output's dtype. The median, 90 % and 99 % quantiles of the error may be 64 times theirs. NaN and infinities must "
    "match. Integers and booleans must be equal, except where ONNX Runtime's runs differ (ties). Rounding widens the tolerance by a "
    "share of the element plus the same share of its tensor's root mean square: 1 % for weights in float16, 5 % for weights or "
    "arithmetic in bfloat16, 10 % for a network that rounds its activations to integers. Of integers, 2 % may then differ with float16 "
    "weights, 5 % in the other cases"
)
_REFERENCES = {
    True: "ONNX Runtime in float64",
    False: "ONNX Runtime in float32, the mean of its runs with and without graph optimisations",
    None: "ONNX Runtime, graph optimisations off",
}
"""What the report calls the reference, by whether it is in float64; None if the network rounds its activations or computes in bfloat16."""
_UNTUNED = (
    "The same network without records: every kernel has its default schedule, which rules choose in "
    "milliseconds (on a GPU: TVM's own schedule). A job without trials gives this network. Unscheduled "
    "loops, which TVM itself would generate for a CPU, take up to two hundred times as long."
)
_ONNXRUNTIME = (
    "ONNX Runtime's CPU provider with all graph optimisations, TVM's number of threads within an operator "
    "and one thread between operators. Its time includes the allocation of outputs; TVM's time excludes "
    "copies of inputs and outputs. On a GPU: its CUDA provider, with inputs and outputs on the GPU, timed "
    "after the artifact. The artifact, ONNX Runtime and torch.compile are synchronised with the GPU once "
    "per sample, after its last inference."
)
_BASELINES = (
    "Each runs in its own process, with as many threads as the artifact, and is timed in the same blocks. OpenVINO runs the network with "
    "its latency hint, in float32 or in the default precision that it chooses for the CPU: an ONNX file with the shapes and values of the "
    "job, or a TFLite file as it was uploaded. LiteRT runs the TFLite file with XNNPACK. Inputs and outputs stay where the runtime "
    "keeps them. Outputs on these inputs are compared with the reference, as the artifact's outputs are."
)
_OUTPUTS = (
    "Every output of the artifact is compared with ONNX Runtime's, element by element, on each of the user's sample sets and each set of "
    "random inputs. The ways in which ONNX Runtime ran are listed with the outputs (checks.runs in the JSON); their differences give the "
    "tolerance. Every tuned kernel was also compared with its untuned form, in all arguments; if the two disagree, unscheduled loops "
    "decide which is correct."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of all checks and timings.

    Attributes:
        this_machine: Whether the device is the machine that compiled.
        seed: Seed of the first set of inputs, and of the kernels' inputs.
    """

    device_model: str
    this_machine: bool
    threads: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        system = (
            f"{platform.system()} {platform.release()} {platform.machine()}" if self.this_machine else None
        )
        return {**asdict(self), "system": system}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvidence:
    """The report's sections on kernels.

    Attributes:
        kernels: Every task.
        not_tunable: The kernels that are no tasks.
        alternatives: `SelectedAlternatives.to_json`, if the network has alternatives.
        replaced: The kernels that alternatives replace.
    """

    kernels: Sequence[CheckedKernel]
    not_tunable: Sequence[UntunableKernel]
    alternatives: Mapping[str, Any] = field(default_factory=dict)
    replaced: Sequence[CheckedKernel] = ()

    @property
    def coverage(self) -> Coverage:
        """The tasks in short."""
        return Coverage(
            hits=tuple(kernel.hit for kernel in self.kernels if kernel.hit is not None),
            misses=tuple(kernel.miss for kernel in self.kernels if kernel.miss is not None),
        )

    @property
    def used(self) -> list[tuple[KernelInfo, TuningRecord]]:
        """The tasks whose tuned kernels are used, with their records."""
        return [
            (kernel.task, kernel.record)
            for kernel in self.kernels
            if kernel.hit is not None and kernel.record is not None
        ]

    def to_json(self) -> dict[str, Any]:
        coverage = self.coverage
        return {
            "coverage": coverage.to_json(),
            "fallbacks": [miss.to_json() for miss in coverage.fallbacks],
            "not_tunable": [asdict(kernel) for kernel in self.not_tunable],
            "kernels": [
                {
                    "workload_key": kernel.task.workload_key,
                    "names": list(kernel.task.names),
                    **kernel.evidence,
                }
                for kernel in (*self.kernels, *self.replaced)
                if kernel.evidence
            ],
            "alternatives": dict(self.alternatives),
            "records": [_record(task, record) for task, record in self.used],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEvidence:
    """The report's section on outputs.

    Attributes:
        comparison: The outputs of the artifact's network against ONNX Runtime's.
        runs: The ways in which ONNX Runtime was run for the comparison: `Reference.runs`.
        segments: The check segment by segment: `SegmentsCheck.to_json`, if there was one.
        samples: A summary of each of the user's files of samples.
    """

    comparison: ModelComparison
    runs: Mapping[str, Any] | None = None
    segments: Mapping[str, Any] | None = None
    samples: Sequence[SampleSummary] = ()

    def to_json(self) -> dict[str, Any]:
        runs, segments = self.runs, self.segments
        return {
            "reference": _REFERENCES[None if runs is None else bool(runs["float64"])],
            "rule": _RULE,
            **self.comparison.to_json(),
            "runs": None if runs is None else dict(runs),
            "parts": None if segments is None else dict(segments),
            "samples": self._samples(),
        }

    def _samples(self) -> dict[str, Any] | None:
        """Return what the user's samples are, and the largest errors on them; nothing of their contents."""
        compared = self.comparison.on_samples()
        if compared is None:
            return None
        return {"files": [summary.to_json() for summary in self.samples], **compared.errors()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyEvidence:
    """The report's section on latencies.

    Attributes:
        latency: By name: ``"untuned"``, ``"tuned"`` (the artifact's network) and, if they were timed, ``"onnxruntime"``,
            ``"torch_compile"`` and other runtimes.
        rejected: The latency of the tuned network, if it fell back for being slower than the untuned one.
        alone: `KernelSums.to_json`, if the latencies did not tell whether the tuned network is faster than the untuned one.
        no_baseline: Why ONNX Runtime was not timed; empty if it was.
        no_torch_compile: Why `torch.compile` was not timed on a GPU; empty if it was, and on CPUs.
        baselines: `BaselineFacts.to_json` of the other runtimes that were asked for, by name.
    """

    latency: Mapping[str, Latency]
    rejected: Latency | None = None
    alone: Mapping[str, Any] | None = None
    no_baseline: str = ""
    no_torch_compile: str = ""
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        latency, tuned = self.latency, self.latency["tuned"]
        onnxruntime = latency.get("onnxruntime")
        return {
            "onnxruntime": None,
            **{name: network.to_json() for name, network in latency.items()},
            "rejected": self.rejected.to_json() if self.rejected else None,
            "onnxruntime_missing": self.no_baseline or None,
            "torch_compile_missing": self.no_torch_compile or None,
            "speedup_over_untuned": latency["untuned"].median_sec / tuned.median_sec,
            "speedup_over_onnxruntime": onnxruntime.median_sec / tuned.median_sec if onnxruntime else None,
            "ratios": {name: ratio.to_json() for name, ratio in speedups(latency).items()},
            **baselines_report(self.baselines),
            **({"alone": dict(self.alone)} if self.alone is not None else {}),
        }


def make_report(
    *,
    kernels: KernelEvidence,
    outputs: OutputEvidence,
    latencies: LatencyEvidence,
    environment: Environment,
    warnings: Sequence[str],
    phases_sec: Mapping[str, float],
    baselines_sec: Mapping[str, float] | None = None,
    precision: Mapping[str, Any] | None = None,
    shapes: Sequence[Mapping[str, Any]] = (),
    other_shapes: Mapping[str, Any] | None = None,
    hybrid: Mapping[str, Any] | None = None,
    reused: Mapping[str, int] | None = None,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the report.

    Args:
        kernels: Tasks and other kernels.
        outputs: How the outputs compare.
        latencies: How fast the network is; of one with several sets of shapes, in the first.
        environment: The environment of all measurements.
        warnings: Sentences for people.
        phases_sec: Wall-clock seconds of each phase.
        baselines_sec: Seconds of the phases that each of the other runtimes took.
        precision: `precision_report`.
        shapes: `shape_reports`, of a network of several sets of shapes.
        other_shapes: `OtherShapes.to_json`.
        hybrid: `parts_report`, if ONNX Runtime runs parts of the network.
        reused: How many findings of earlier compiles were used, by kind: `Findings.reused`.
        before: `TimedBefore.to_json`, if an earlier compile measured the latencies.
    """
    return {
        "report_version": REPORT_VERSION,
        "place": environment.to_json(),
        "method": {
            "latency": MODEL_METHOD,
            "untuned": _UNTUNED,
            "onnxruntime": _ONNXRUNTIME,
            **({"baselines": _BASELINES} if latencies.baselines else {}),
            "kernels": KERNEL_METHOD,
            "outputs": _OUTPUTS,
        },
        **kernels.to_json(),
        "checks": outputs.to_json(),
        "shapes": [dict(shape) for shape in shapes],
        "other_shapes": other_shapes,
        "precision": dict(precision or {"name": Precision.AS_MODEL.value}),
        **({"hybrid": dict(hybrid)} if hybrid else {}),
        "latency": latencies.to_json(),
        "warnings": list(warnings),
        "versions": versions(),
        "phases_sec": dict(phases_sec),
        **({"baselines_sec": dict(baselines_sec)} if baselines_sec else {}),
        "reused": dict(reused or {}),
        **({"timed_before": dict(before)} if before is not None else {}),
    }


def baselines_report(baselines: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the report's ``latency`` says of other runtimes beside their times; nothing if none was asked for."""
    return {"baselines": {name: dict(facts) for name, facts in baselines.items()}} if baselines else {}


def why_no_baseline(*, wanted: bool, here: bool) -> str:
    """Return why no baseline is timed (none is wanted, or it cannot run where the network runs); empty if one may be timed."""
    if not wanted:
        return "not asked for"
    return "" if here else "the device is another machine, without ONNX Runtime"


def _record(task: KernelInfo, record: TuningRecord) -> dict[str, Any]:
    return {
        "workload_key": task.workload_key,
        "name": task.name,
        "target_key": record.target_key,
        "device_model": record.device_model,
        "toolchain": record.toolchain,
        "space_key": record.space_key,
        "config": record.config.to_json(),
        "cost_sec": record.cost_sec,
        "samples_sec": list(record.samples_sec),
        "measured_at": record.measured_at,
        "tuner": record.tuner,
        "confirmed": record.confirmed,
    }
