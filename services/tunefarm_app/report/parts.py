"""The parts of a job's report that come from the compiler."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """Base of all parts."""

    model_config = ConfigDict(frozen=True)


class ReportTiming(Part):
    """Samples of one thing that was timed."""

    median_sec: float = Field(description="Median of the samples, seconds.")
    min_sec: float = Field(description="The shortest sample.")
    max_sec: float = Field(description="The longest sample.")
    spread: float = Field(description="Longest less shortest sample, as a share of the median.")
    samples_sec: list[float] = Field(description="All samples, in measuring order.")
    inferences: list[int] = Field(
        description="Of how many calls in a row each sample is the mean; empty where that is not known."
    )
    threads: int | None = Field(description="On how many threads kernels ran; null where that is not known.")


class ReportLatency(Part):
    """Seconds per inference of the whole network."""

    onnxruntime: ReportTiming | None = Field(description="ONNX Runtime; null where it was not timed.")
    onnxruntime_missing: str | None = Field(description="Why ONNX Runtime was not timed.")
    torch_compile: ReportTiming | None = Field(
        None, description="PyTorch's `torch.compile`; null where it was not timed."
    )
    torch_compile_missing: str | None = Field(
        None, description="Why `torch.compile` was not timed; null on CPUs, where it is not asked for."
    )
    untuned: ReportTiming = Field(description="As TVM compiles it without any tuning.")
    tuned: ReportTiming = Field(description="What is in the artifact.")
    tuned_is_untuned: bool = Field(
        description="Whether the artifact holds no tuned kernel, so that `tuned` and `untuned` are the same samples."
    )
    rejected: ReportTiming | None = Field(
        description="The tuned network, where it was timed and left out for being slow."
    )
    speedup_over_untuned: float = Field(description="Median of untuned, divided by the median of tuned.")
    speedup_over_onnxruntime: float | None = Field(description="The same of ONNX Runtime.")
    overlaps_untuned: bool = Field(description="Whether the samples' ranges overlap: noise may explain it.")
    overlaps_onnxruntime: bool | None = Field(description="The same of ONNX Runtime.")
    speedup_over_torch_compile: float | None = Field(None, description="The speedup over `torch.compile`.")
    overlaps_torch_compile: bool | None = Field(None, description="Whether those samples overlap.")


class ReportedRecord(Part):
    """A measurement that a tuned kernel in the artifact goes back to."""

    workload_key: str = Field(description="The kernel's computation.")
    name: str = Field(description="The kernel's name in the graph.")
    target_key: str = Field(description="The target that it was measured for.")
    device_model: str = Field(description="The kind of device that measured it.")
    toolchain: str = Field(description="The compiler that made it.")
    space_key: str = Field(description="The config space that `config` is a point of.")
    config: list[Any] = Field(description="The config that was chosen.")
    cost_sec: float | None = Field(description="Median seconds per call when it was measured.")
    samples_sec: list[float] = Field(description="The samples then.")
    measured_at: float = Field(description="When, Unix seconds of the worker.")
    tuner: str = Field(description="What proposed it.")
    confirmed: bool = Field(
        description="Whether it was measured a second time, beside the task's other best."
    )
    record_id: str | None = Field(
        None, description="The record in the farm's history; null where it is not known."
    )
    job_id: str | None = Field(None, description="The job that measured it; null of an imported one.")
    device: str | None = Field(
        None, description="The name of the device that measured it; null where it is gone, or not known."
    )


class ReportComparison(Part):
    """How one output compares with ONNX Runtime's."""

    name: str = Field(description="The output's name.")
    dtype: str = Field(description="Its element type.")
    ok: bool = Field(description="Whether it is within the tolerance.")
    max_abs_error: float = Field(description="Largest difference of two finite elements.")
    max_rel_error: float = Field(description="The same, as a share of the output's root mean square.")
    rtol: float = Field(description="Relative tolerance; 0 for integers and booleans.")
    mismatches: int = Field(description="Elements outside of the tolerance.")
    elements: int = Field(description="How many elements there are.")
    comparable: int = Field(description="How many of them are finite numbers.")
    message: str = Field(description="What is wrong, where something is.")


class ReportInputSet(Part):
    """One set of random inputs, and what came of it."""

    kind: str = Field(description="How they were drawn: `normal`, or `positive` alone.")
    seed: int = Field(description="The seed they were drawn with.")
    outputs: list[ReportComparison] = Field(description="Each output.")


class ReportChecks(Part):
    """The outputs of what is in the artifact, against a reference."""

    reference: str = Field(description="What they were compared with.")
    rule: str = Field(description="The tolerance.")
    ok: bool = Field(description="Whether all are within it.")
    max_abs_error: float = Field(description="Largest difference of all.")
    max_rel_error: float = Field(description="Largest one, as a share of its output's root mean square.")
    input_sets: list[ReportInputSet] = Field(description="The inputs, and each output.")


class ReportErrors(Part):
    """How far outputs are off."""

    max_abs_error: float = Field(description="Largest difference of two finite elements.")
    max_rel_error: float = Field(description="The same, as a share of its output's root mean square.")
    mean_rel_error: float = Field(
        description="The mean instead of the largest, of the output that is off most."
    )


class ReportAccuracy(Part):
    """What storing weights in fewer bytes does to the outputs."""

    stored: ReportErrors = Field(description="Of what is in the artifact, against ONNX Runtime.")
    as_model: ReportErrors | None = Field(
        description="Of the same network with the weights of its file; null where that could not be run."
    )


class ReportStored(Part):
    """Large weights."""

    stored: int = Field(description="Tensors that are stored in fewer bytes.")
    kept: int = Field(description="Tensors that stayed as they were.")
    bytes_before: int = Field(description="Of those that are stored so, as float32.")
    bytes_after: int = Field(description="Of the same, as they are stored.")


class ReportPrecision(Part):
    """How weights are stored."""

    name: str = Field(description="as-model, float16-weights, bfloat16-weights or int8-weights.")
    weights: ReportStored | None = Field(None, description="How many; null for as-model.")
    method: str | None = Field(None, description="How the accuracy was measured.")
    accuracy: ReportAccuracy | None = Field(None, description="What it costs; null for as-model.")


class ReportAlternative(Part):
    """Another algorithm for a kernel: what its kernels win by themselves, what the network wins, and what is between."""

    workload_key: str = Field(description="The computation of the kernel that it stands for.")
    name: str = Field("", description="That kernel's name in the graph.")
    algorithm: str = Field(description="Which.")
    chosen: bool = Field(description="Whether it is in the artifact.")
    reason: str = Field("", description="Why it is not.")
    weight: int = Field(1, description="Calls per inference.")
    direct_sec: float | None = Field(
        None,
        description="Seconds per call of the kernel as it stands, by itself; null where it was not timed.",
    )
    sum_sec: float = Field(description="Seconds per call of all kernels of the algorithm, each by itself.")
    expected_gain_sec: float | None = Field(
        None, description="Seconds per inference that its kernels win by themselves."
    )
    network_gain_sec: float | None = Field(
        None,
        description="Seconds per inference that the network wins, timed with it and without; null where that was not done.",
    )
    border_cost_sec: float | None = Field(
        None,
        description="The former less the latter: what it costs at its borders. Negative where it pays there.",
    )


class ReportUntunable(Part):
    """A kernel that is compiled as it stands and is no tuning task."""

    name: str = Field(description="Its name in the graph.")
    weight: int = Field(description="Calls per inference.")
    reason: str = Field(description="Why it cannot be tuned.")


class ReportRate(Part):
    """Something per second."""

    one_core: float = Field(description="On one core, while the others rest.")
    all_cores: float = Field(description="On all cores together.")


class ReportPeak(Part):
    """What the device can do at its best, by the farm's own measurement: of each figure, the best until then."""

    threads: int = Field(description="How many cores all of them are.")
    measured_at: float = Field(description="When it was measured last, Unix seconds.")
    flops_per_sec: dict[str, ReportRate] = Field(
        description="Floating-point operations of fused multiply-adds, two each, by element type."
    )
    memory_bytes_per_sec: ReportRate | None = Field(
        description="Bytes moved by a triad over arrays that fit into no usual cache; null where that was not measured."
    )
    missing: str = Field(description="Why a figure is not there; empty where all are.")


class ReportRoofline(Part):
    """How near a kernel is to what the device can do. What was not measured is null."""

    flops_per_sec: float = Field(
        description="Floating-point operations per second: of the kernel in the artifact where it was timed by itself, else of "
        "the job's fastest candidate."
    )
    peak_flops_per_sec: float | None = Field(
        description="What the device can do on as many threads, in the kernel's element type; null where that was not measured."
    )
    share_of_peak: float | None = Field(description="The one by the other.")
    intensity: float | None = Field(
        description="Operations per byte that has to be moved at the least; null where that is not known."
    )
    bound_flops_per_sec: float | None = Field(
        description="The peak, or the intensity times the bandwidth of where its data fit, if that is less (Williams et al. 2009)."
    )
    share_of_bound: float | None = Field(description="How much of that it reaches.")
    memory_bound: bool | None = Field(description="Whether bandwidth is what bounds it.")


class ReportPlace(Part):
    """Where the compiler checked and timed everything."""

    device_model: str = Field(description="The kind of device.")
    this_machine: bool = Field(description="Whether the device is the machine that compiled.")
    threads: int = Field(description="On how many threads kernels ran.")
    seed: int = Field(description="Of the first set of inputs, and of the kernels' inputs.")
    system: str | None = Field(description="Its operating system; null of another machine.")
