"""The schema of a job's report. The API publishes it, and the page shows it.

Unknown values are null or empty, never guessed; `ReportCoverage.misses` and `JobReport.not_measured` say why.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from tunefarm_app.report.hybrid import ReportHybrid
from tunefarm_app.report.libraries import ReportLibraryAhead
from tunefarm_app.report.peak_sections import ReportPeak, ReportRoofline
from tunefarm_app.report.precision_sections import ReportPrecision
from tunefarm_app.report.sections import (
    ReportAlternative,
    ReportChecks,
    ReportedRecord,
    ReportLatency,
    ReportMeasurement,
    ReportNetwork,
    ReportPlace,
    ReportSection,
    ReportTiming,
    ReportUntunable,
)
from tunefarm_app.report.shape_sections import ReportOtherShapes, ReportShape
from tunefarm_db.states.job import JobState

FORMAT: Literal["tunefarm-job-report"] = "tunefarm-job-report"
FORMAT_VERSION: Literal[1] = 1


class ReportedJob(ReportSection):
    """The job: its terms and its end."""

    id: str = Field(description="Identifier.")
    state: JobState = Field(description="Final state.")
    error: dict[str, Any] | None = Field(description="Error, if it failed: `code` and `message`.")
    tuner: str = Field(description="Search strategy.")
    seed: int = Field(description="Seed of the search.")
    budget: dict[str, Any] = Field(description="Budget; null members are limits that were not set.")
    options: dict[str, Any] = Field(description="Further options.")
    device_key: str = Field(description="Pool that measured.")
    stop_reason: str | None = Field(description="Limit that ended the search, or `exhausted`.")
    tuned_sec: float = Field(description="Seconds of search spent.")
    trials: int = Field(description="Candidates.")
    failures: int = Field(description="Number of failed trials.")
    created_at: float = Field(description="Time of submission, Unix seconds.")
    started_tuning_at: float | None = Field(description="Start of the search.")
    finished_at: float | None = Field(description="When it ended.")


class ReportedModel(ReportSection):
    """The model that was tuned."""

    id: str = Field(description="Identifier.")
    name: str = Field(description="Name given at the upload.")
    sha256: str = Field(description="SHA-256 of the file.")
    size_bytes: int = Field(description="Size of the file.")
    shapes: dict[str, list[int] | str] = Field(
        description="Shapes given for inputs with dynamic dimensions: sizes, or a text with several sizes."
    )
    values: dict[str, Any] = Field(default={}, description="Values given for inputs that became constants.")
    inputs: list[dict[str, Any]] = Field(description="Name, shape and element type of each input.")
    outputs: list[dict[str, Any]] = Field(description="The same of each output.")
    operators: list[list[Any]] = Field(description="Pairs of an operator and its count.")
    opset: int | None = Field(description="ONNX operator set.")
    num_params: int | None = Field(description="Number of parameters.")


class ReportedTarget(ReportSection):
    """The target of the compiler."""

    key: str = Field(description="Target as text, as the command and the engine read it.")
    attributes: dict[str, Any] = Field(description="Target as TVM's target JSON.")


class ReportedDevice(ReportSection):
    """The device that the artifact was timed on, as it described itself."""

    name: str | None = Field(description="Name in the farm; null if unknown.")
    device_model: str = Field(description="Device model: timings of one model are comparable.")
    cpu: str | None = Field(description="The CPU's name.")
    gpus: list[str] = Field(description="The GPUs' names.")
    cores: int | None = Field(description="CPU cores.")
    memory_bytes: int | None = Field(description="Memory.")
    system: str | None = Field(description="Operating system.")
    versions: dict[str, str] = Field(description="Versions of its software.")
    calibration_sec: float | None = Field(
        description="Time of the farm's last calibration before, in seconds: it reveals a throttled device."
    )


class ReportedArtifact(ReportSection):
    """The artifact."""

    name: str = Field(description="The file's name.")
    sha256: str = Field(description="SHA-256 of the file.")
    size_bytes: int = Field(description="Size of the file.")
    created_at: float = Field(description="Creation time, Unix seconds.")
    machine: str | None = Field(description="Machine architecture that it runs on.")
    cpu_features: list[str] = Field(description="Required CPU features.")


class ReportKernel(ReportSection):
    """A tuning task: a kernel of the network that can be tuned."""

    position: int = Field(description="Index of the task in the job.")
    name: str = Field(description="Name in the graph.")
    workload_key: str = Field(description="Content hash of the computation.")
    weight: int = Field(description="Calls per inference.")
    flops: float | None = Field(description="Floating-point operations per call; null if unknown.")
    args: list[dict[str, Any]] = Field(
        description="Shape and element type of its arguments, the result last."
    )
    covered: bool | None = Field(description="Whether the artifact has a tuned form of it; null if unknown.")
    algorithm: str | None = Field(
        None,
        description="Algorithm that replaces it in the artifact; null if none does.",
    )
    alternative: str | None = Field(
        None,
        description="Algorithm that it belongs to and that replaces other kernels, whose time includes its own; "
        "null for a kernel of the original network.",
    )
    reason: str | None = Field(description="Reason if it has no tuned form.")
    message: str = Field(description="Details of the reason.")
    untuned: ReportTiming | None = Field(
        description="Seconds per call, untuned and timed alone; null if not timed."
    )
    tuned: ReportTiming | None = Field(
        description="The same for its best record's kernel, timed in turn with it, even if rejected."
    )
    before_sec: float | None = Field(description="Untuned seconds per inference: median times weight.")
    after_sec: float | None = Field(description="Seconds per inference in the artifact.")
    share_before: float | None = Field(None, description="Share of an untuned inference; null if not timed.")
    share_after: float | None = Field(
        None, description="Share of an inference of the artifact; null if not timed."
    )
    speedup: float | None = Field(
        None,
        description="`before_sec` divided by `after_sec`; null if it runs untuned, was not timed, or was `disturbed`.",
    )
    disturbed: bool = Field(
        False,
        description="Whether it took longer alone than the whole network, untuned or in the artifact: other work disturbed its timing.",
    )
    trials: int = Field(description="Candidates.")
    outcomes: dict[str, int] = Field(description="Number of trials by outcome.")
    confirmations: int = Field(
        description="Number of confirmations: measurements of its best configs in turn."
    )
    best_cost_sec: float | None = Field(description="Seconds per call of the job's fastest config.")
    spent_sec: float = Field(description="Seconds of search.")
    roofline: ReportRoofline | None = Field(
        None, description="Efficiency against the device's peak; null if not timed."
    )


class ReportBreakdown(ReportSection):
    """The parts of an inference's time, which add up to the whole: the latency, or the kernels' sum if that is more."""

    kernels_before_sec: float = Field(description="Sum of the untuned kernels over an inference.")
    kernels_after_sec: float = Field(description="Sum of the artifact's kernels over an inference.")
    rest_before_sec: float = Field(
        description="Latency of the untuned network minus its kernels; 0 if these took longer alone."
    )
    rest_after_sec: float = Field(
        description="Latency of the artifact minus its kernels; 0 if these took longer alone."
    )
    exceeds_before: bool = Field(
        False,
        description="Whether the untuned kernels alone took longer than the network by more than such timings err: the device "
        "was disturbed. Shares are then of the kernels' sum, or null if some kernels are `untimed`.",
    )
    exceeds_after: bool = Field(False, description="The same of the artifact's kernels.")
    timed: int = Field(description="Number of kernels that were timed alone.")
    not_timed: int = Field(description="Number of kernels that were not, and are part of the remainder.")
    untimed: int = Field(0, description="Number of those that are the network's own, and no alternatives.")

    @property
    def shares_before_known(self) -> bool:
        """Whether kernels have shares of an untuned inference: not if some take longer alone than all, and others are unknown."""
        return not (self.exceeds_before and self.untimed)

    @property
    def shares_after_known(self) -> bool:
        """The same of an inference of the artifact."""
        return not (self.exceeds_after and self.untimed)


class ReportMiss(ReportSection):
    """A task that runs its untuned kernel."""

    workload_key: str = Field(description="Content hash of the computation.")
    name: str = Field(description="Name in the graph.")
    weight: int = Field(description="Calls per inference.")
    reason: str = Field(description="Why.")
    message: str = Field(description="Details of the reason.")


class ReportCoverage(ReportSection):
    """Tasks with a tuned kernel, and the reasons of the others."""

    tasks: int = Field(description="Tuning tasks of the network.")
    covered: int = Field(description="Number of tasks that run a tuned kernel.")
    misses: list[ReportMiss] = Field(description="The other tasks.")


class ReportStep(ReportSection):
    """A command or snippet that repeats a part of the job."""

    what: str = Field(description="Purpose of the step.")
    language: Literal["sh", "python", "text"] = Field(description="Language of `code`.")
    code: str = Field(description="Commands to run, or packages to install.")


class ReportReproduce(ReportSection):
    """Steps to reproduce the result."""

    steps: list[ReportStep] = Field(description="In order.")
    caveats: list[str] = Field(description="Differences to expect.")


class JobReport(ReportSection):
    """The report of a finished job, including a list of what was not measured."""

    model_config = ConfigDict(title="JobReport")

    format: Literal["tunefarm-job-report"] = Field(description="Kind of document.")
    format_version: Literal[1] = Field(
        description="Version of the format. It increases if a member's meaning changes; new members may come without."
    )
    simulated: bool = Field(description="Whether the measurements are simulated (`TUNEFARM_ENGINE=replay`).")
    summary: list[str] = Field(description="The outcome in sentences.")
    job: ReportedJob = Field(description="The job.")
    model: ReportedModel = Field(description="The network.")
    target: ReportedTarget = Field(description="Target of the network.")
    toolchain: str | None = Field(description="Compiler version of the kernels.")
    device: ReportedDevice | None = Field(
        description="Device that timed `latency`; null without an artifact. The checks ran on that of the compile (`measurements`)."
    )
    peak: ReportPeak | None = Field(None, description="Peak of the device; null if not measured.")
    place: ReportPlace | None = Field(description="Use of the device by the compiler; null if unknown.")
    artifact: ReportedArtifact | None = Field(description="Artifact; null if there is none.")
    latency: ReportLatency | None = Field(description="Latency of the whole network; null if not timed.")
    measurements: list[ReportMeasurement] = Field(
        default_factory=list,
        description="Measurements of the whole network, oldest first: that of the compile, and those asked for later (the newest 20). "
        "`latency` is the shown one.",
    )
    networks: list[ReportNetwork] = Field(
        default_factory=list,
        description="The network as its search timed it on the way, with its kernels so far, oldest first.",
    )
    shapes: list[ReportShape] = Field(
        default_factory=list,
        description="Sets of shapes that the artifact runs, the most important first; empty if there is only one. "
        "`latency` is that of the first.",
    )
    other_shapes: ReportOtherShapes | None = Field(
        None, description="Code for all other shapes; null if the model's file fixes its shapes."
    )
    hybrid: ReportHybrid | None = Field(
        None, description="What ONNX Runtime runs inside the artifact; null if the network is compiled whole."
    )
    coverage: ReportCoverage | None = Field(description="Tasks with and without a tuned kernel.")
    kernels: list[ReportKernel] = Field(description="Each tuning task, in order of first use.")
    not_tunable: list[ReportUntunable] = Field(description="Kernels of the network that cannot be tuned.")
    alternatives: list[ReportAlternative] = Field(
        default_factory=list,
        description="Alternative algorithms that were tuned for its kernels, in the artifact or not.",
    )
    libraries_ahead: list[ReportLibraryAhead] = Field(
        default_factory=list,
        description="Kernels that a library computes faster than the best kernel of ours, those first that cost an inference most.",
    )
    networks_sec: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds per inference without alternatives (`direct`) and with those in the artifact (`chosen`), "
        "timed in turn; empty if there are none.",
    )
    breakdown: ReportBreakdown | None = Field(description="Breakdown of the latency; null if not timed.")
    outcomes: dict[str, int] = Field(description="Number of trials by outcome, over all tasks.")
    checks: ReportChecks | None = Field(description="Comparison of its outputs with ONNX Runtime's.")
    precision: ReportPrecision | None = Field(
        None, description="Format of its stored weights; null if unknown."
    )
    records: list[ReportedRecord] = Field(description="Records of its tuned kernels.")
    method: dict[str, str] = Field(description="Methods of measurement, in sentences.")
    not_measured: list[str] = Field(description="Properties that were not measured.")
    warnings: list[str] = Field(description="Warnings.")
    versions: dict[str, str] = Field(description="Versions of the packages that made the artifact.")
    phases_sec: dict[str, float] = Field(description="Seconds of the compiler's phases.")
    reused: dict[str, int] = Field(
        default_factory=dict,
        description="How many findings of earlier compiles were used instead of measured again, by kind: `kernel` (checks of tuned "
        "kernels), `untuned` and `fixed` (times of kernels), `alternative` (whether one pays).",
    )
    reproduce: ReportReproduce = Field(description="What it takes to measure this result again.")
