"""The schema of a job's report, which the API publishes and the page is drawn from.

Whatever could not be known is null or empty, never made up; `ReportCoverage.misses` and `JobReport.not_measured` say why.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from tunefarm_app.report.parts import (
    Part,
    ReportAlternative,
    ReportChecks,
    ReportedRecord,
    ReportLatency,
    ReportPeak,
    ReportPlace,
    ReportPrecision,
    ReportRoofline,
    ReportTiming,
    ReportUntunable,
)
from tunefarm_db.states.job import JobState

FORMAT: Literal["tunefarm-job-report"] = "tunefarm-job-report"
FORMAT_VERSION: Literal[1] = 1


class ReportedJob(Part):
    """The job: what was asked for, and how it ended."""

    id: str = Field(description="Its identity.")
    state: JobState = Field(description="How it ended.")
    error: dict[str, Any] | None = Field(description="Why it failed, if it did: `code` and `message`.")
    tuner: str = Field(description="The search strategy.")
    seed: int = Field(description="Seed of the search.")
    budget: dict[str, Any] = Field(
        description="What it might spend; null members are limits that were not set."
    )
    options: dict[str, Any] = Field(description="Further options.")
    device_key: str = Field(description="The pool that measured.")
    stop_reason: str | None = Field(description="What ended the search: the name of a limit, or `exhausted`.")
    tuned_sec: float = Field(description="Seconds spent searching.")
    trials: int = Field(description="Candidates.")
    failures: int = Field(description="Candidates that failed.")
    created_at: float = Field(description="When it was submitted, Unix seconds.")
    started_tuning_at: float | None = Field(description="When the search began.")
    finished_at: float | None = Field(description="When it ended.")


class ReportedModel(Part):
    """The network that went in."""

    id: str = Field(description="Its identity.")
    name: str = Field(description="What it was called when it was uploaded.")
    sha256: str = Field(description="SHA-256 of the file.")
    size_bytes: int = Field(description="Size of the file.")
    shapes: dict[str, list[int]] = Field(description="Shapes given for inputs with open dimensions.")
    inputs: list[dict[str, Any]] = Field(description="Name, shape and element type of each input.")
    outputs: list[dict[str, Any]] = Field(description="The same of each output.")
    operators: list[list[Any]] = Field(description="Pairs of an operator and how often it is there.")
    opset: int | None = Field(description="ONNX operator set.")
    num_params: int | None = Field(description="Numbers among its weights.")


class ReportedTarget(Part):
    """What was compiled for."""

    key: str = Field(description="As text, which the command and the engine read back.")
    attributes: dict[str, Any] = Field(description="As TVM's target JSON.")


class ReportedDevice(Part):
    """The device that the artifact was checked and timed on, as it described itself."""

    name: str | None = Field(description="Its name in the farm; null where it is not known.")
    device_model: str = Field(description="Its kind: timings of one kind can be compared.")
    cpu: str | None = Field(description="The CPU's name.")
    gpus: list[str] = Field(description="The GPUs' names.")
    cores: int | None = Field(description="CPU cores.")
    memory_bytes: int | None = Field(description="Memory.")
    system: str | None = Field(description="Operating system.")
    versions: dict[str, str] = Field(description="Versions of its software.")
    calibration_sec: float | None = Field(
        description="What it took for the farm's calibration kernel, last before: tells a throttled device."
    )


class ReportedArtifact(Part):
    """What came out."""

    name: str = Field(description="The file's name.")
    sha256: str = Field(description="SHA-256 of the file.")
    size_bytes: int = Field(description="Size of the file.")
    created_at: float = Field(description="When it was made, Unix seconds.")
    machine: str | None = Field(description="The kind of machine that it runs on.")
    cpu_features: list[str] = Field(description="The CPU features that it needs.")


class ReportKernel(Part):
    """One kernel of the network that can be tuned: a tuning task."""

    position: int = Field(description="Its place among the job's tasks.")
    name: str = Field(description="Its name in the graph.")
    workload_key: str = Field(description="Its computation.")
    weight: int = Field(description="Calls per inference.")
    flops: float | None = Field(description="Floating-point operations per call; null where not known.")
    args: list[dict[str, Any]] = Field(
        description="Shape and element type of its arguments, the result last."
    )
    covered: bool | None = Field(
        description="Whether the artifact holds a tuned form of it; null where nothing says so."
    )
    algorithm: str | None = Field(
        None,
        description="The algorithm that takes its place in the artifact; null where it runs as it stands.",
    )
    alternative: str | None = Field(
        None,
        description="The algorithm that it is a part of, in place of other kernels, whose time includes its own; null for a "
        "kernel of the network as it stands.",
    )
    reason: str | None = Field(description="Why it does not.")
    message: str = Field(description="More about that, where there is more.")
    untuned: ReportTiming | None = Field(
        description="Seconds per call, untuned and by itself; null where it was not timed so."
    )
    tuned: ReportTiming | None = Field(
        description="The same of its best record's kernel, timed beside it, also where that was left out."
    )
    before_sec: float | None = Field(description="Untuned seconds per inference: median times weight.")
    after_sec: float | None = Field(description="Seconds per inference of what is in the artifact.")
    trials: int = Field(description="Candidates.")
    outcomes: dict[str, int] = Field(description="How many of them ended how.")
    confirmations: int = Field(description="How often its best were measured again, side by side.")
    best_cost_sec: float | None = Field(description="The job's fastest candidate, seconds per call.")
    spent_sec: float = Field(description="Seconds of searching.")
    roofline: ReportRoofline | None = Field(
        None, description="How near it is to what the device can do; null where it was not timed."
    )


class ReportBreakdown(Part):
    """Where the time of an inference goes. The rest is the latency less the kernels that were timed by themselves."""

    kernels_before_sec: float = Field(description="Untuned kernels, summed up over an inference.")
    kernels_after_sec: float = Field(description="The kernels of the artifact.")
    rest_before_sec: float = Field(
        description="The untuned network's latency less its kernels; may be negative."
    )
    rest_after_sec: float = Field(description="The artifact's latency less its kernels; may be negative.")
    timed: int = Field(description="Kernels that were timed by themselves.")
    not_timed: int = Field(description="Those that were not, and are part of the rest.")


class ReportMiss(Part):
    """A task that runs its untuned kernel."""

    workload_key: str = Field(description="Its computation.")
    name: str = Field(description="Its name in the graph.")
    weight: int = Field(description="Calls per inference.")
    reason: str = Field(description="Why.")
    message: str = Field(description="More about that, where there is more.")


class ReportCoverage(Part):
    """How many tasks run a tuned kernel, and why the others do not."""

    tasks: int = Field(description="Tuning tasks of the network.")
    covered: int = Field(description="Those that run a tuned kernel.")
    misses: list[ReportMiss] = Field(description="The others.")


class ReportStep(Part):
    """One way to do a part of it again."""

    what: str = Field(description="What it does.")
    language: Literal["sh", "python", "text"] = Field(description="What `code` is written in.")
    code: str = Field(description="What to run, or to install.")


class ReportReproduce(Part):
    """How to do it again."""

    steps: list[ReportStep] = Field(description="In order.")
    caveats: list[str] = Field(description="What will differ.")


class JobReport(Part):
    """Everything that is known about a finished job, with what was not measured."""

    model_config = ConfigDict(title="JobReport")

    format: Literal["tunefarm-job-report"] = Field(description="What this is.")
    format_version: Literal[1] = Field(
        description="Grows when a member changes its meaning; new ones may come without."
    )
    simulated: bool = Field(description="Whether measurements were made up (`TUNEFARM_ENGINE=replay`).")
    summary: list[str] = Field(description="The outcome in sentences.")
    job: ReportedJob = Field(description="The job.")
    model: ReportedModel = Field(description="The network.")
    target: ReportedTarget = Field(description="What the network was compiled for.")
    toolchain: str | None = Field(description="The compiler that kernels were made with.")
    device: ReportedDevice | None = Field(
        description="Where it was checked and timed; null without an artifact."
    )
    peak: ReportPeak | None = Field(
        None, description="What the device can do at its best; null where that was not measured."
    )
    place: ReportPlace | None = Field(
        description="How the compiler used the device; null where it does not say."
    )
    artifact: ReportedArtifact | None = Field(description="What came out; null where nothing did.")
    latency: ReportLatency | None = Field(description="The whole network; null where it was not timed.")
    coverage: ReportCoverage | None = Field(description="Which tasks run a tuned kernel.")
    kernels: list[ReportKernel] = Field(description="Each tuning task, in order of first use.")
    not_tunable: list[ReportUntunable] = Field(description="The network's other kernels.")
    alternatives: list[ReportAlternative] = Field(
        default_factory=list,
        description="Other algorithms that were tuned for its kernels, in the artifact or not.",
    )
    networks_sec: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds per inference without any of those (`direct`) and with those in the artifact (`chosen`), timed in "
        "turns; empty where none is.",
    )
    breakdown: ReportBreakdown | None = Field(description="Where the time goes; null where it was not timed.")
    outcomes: dict[str, int] = Field(description="How many trials ended how, over all tasks.")
    checks: ReportChecks | None = Field(description="How its outputs compare with ONNX Runtime's.")
    precision: ReportPrecision | None = Field(
        None, description="How its weights are stored; null where the compiler does not say."
    )
    records: list[ReportedRecord] = Field(description="The measurements that its tuned kernels go back to.")
    method: dict[str, str] = Field(description="How things were measured, in sentences.")
    not_measured: list[str] = Field(description="What this report cannot say anything about.")
    warnings: list[str] = Field(description="What a reader should know.")
    versions: dict[str, str] = Field(description="Versions of what made the artifact, by package.")
    phases_sec: dict[str, float] = Field(description="Wall-clock of the compiler's phases.")
    reproduce: ReportReproduce = Field(description="How to do the same again.")
