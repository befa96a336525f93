"""The sections of a job's report that come from the compiler."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tunefarm_text.job_terms import runtime_title


class ReportSection(BaseModel):
    """Base of all sections of a report, and of what is in them."""

    model_config = ConfigDict(frozen=True)


class ReportDisturbance(ReportSection):
    """Other work on the device while a network was timed."""

    blocks: int = Field(description="Timed blocks.")
    dropped: int = Field(0, description="Disturbed blocks, whose samples do not count.")
    slowdown: float = Field(
        1.0, description="How many times as long the remaining samples may have taken as on a quiet device."
    )
    of_fastest: bool = Field(
        False,
        description="Whether the remaining samples are only of the fastest inferences, because other work slowed the others.",
    )
    others_cores: float | None = Field(
        None, description="Cores that other work took on average; null if the device does not tell."
    )
    steal_share: float | None = Field(None, description="Share of all cores that a hypervisor withheld.")
    stalled_share: float | None = Field(
        None, description="Share of the time in which a thread waited for a core (PSI)."
    )
    switches_per_sec: float | None = Field(None, description="Involuntary context switches.")


class ReportTiming(ReportSection):
    """A timing: samples and their statistics."""

    median_sec: float = Field(description="Median of the samples, seconds.")
    min_sec: float = Field(description="Shortest sample.")
    max_sec: float = Field(description="Longest sample.")
    spread: float = Field(description="Longest minus shortest sample, as a share of the median.")
    samples_sec: list[float] = Field(description="All samples, in measuring order.")
    inferences: list[int] = Field(
        description="Number of consecutive calls that each sample is the mean of; empty if unknown."
    )
    threads: int | None = Field(description="Number of threads of the kernels; null if unknown.")
    disturbance: ReportDisturbance | None = Field(
        None, description="Other work on the device meanwhile; null if unknown."
    )


class ReportRatio(ReportSection):
    """How many times as fast the artifact is as another network, and how well that is known."""

    value: float = Field(description="Ratio of the medians.")
    low: float | None = Field(None, description="Lower end of the 95 % interval; null if one sample is all.")
    high: float | None = Field(None, description="Upper end of it.")
    text: str = Field(description="The ratio as far as it is known: `1.24×`, or `between 1.2 and 3.9×`.")
    verdict: Literal["faster", "slower", "same"] = Field(
        description="What the interval says of the artifact; `same` if it cannot tell."
    )
    comparable: bool = Field(
        True,
        description="Whether the other network's outputs are as near to the reference as the artifact's have to be. One that computes less "
        "precisely is not taken for the fastest other runtime.",
    )


class ReportBaselineChecks(ReportSection):
    """A baseline's outputs against the reference, on the inputs that it was timed on."""

    ok: bool = Field(description="Whether they are within what the artifact's may differ by.")
    max_abs_error: float = Field(description="Largest difference.")
    max_rel_error: float = Field(description="The same as a share of the output's root mean square.")
    mean_rel_error: float = Field(description="Mean difference as a share of it.")
    message: str = Field("", description="The first difference that is too large; empty if `ok`.")


class ReportBaseline(ReportSection):
    """Another runtime that was asked for."""

    title: str = Field(description="Its name for people.")
    timing: ReportTiming | None = Field(description="Its latency; null if not timed.")
    missing: str | None = Field(description="Reason if it was not timed.")
    version: str = Field("", description="Version of the runtime; empty if unknown.")
    computes: str = Field(
        "", description="Arithmetic of its products, as the runtime says; empty if unknown."
    )
    checks: ReportBaselineChecks | None = Field(None, description="Its outputs; null if not compared.")


class ReportKernelSums(ReportSection):
    """What kernels take alone, summed over their calls in one inference."""

    tuned_sec: float = Field(description="Tuned: the search's time or the compile's, whichever is less.")
    untuned_sec: float = Field(description="Untuned: the least that the compile measured.")
    kernels: int = Field(description="Their number.")
    is_bound: bool = Field(
        False,
        description="Whether `untuned_sec` is the whole untuned network's time: the most that the kernels can take, which other work made "
        "longer alone.",
    )


class ReportLatency(ReportSection):
    """Seconds per inference of the whole network."""

    onnxruntime: ReportTiming | None = Field(description="ONNX Runtime; null if not timed.")
    onnxruntime_missing: str | None = Field(description="Reason if ONNX Runtime was not timed.")
    torch_compile: ReportTiming | None = Field(
        None, description="PyTorch's `torch.compile`; null if not timed."
    )
    torch_compile_missing: str | None = Field(
        None, description="Reason if `torch.compile` was not timed; null on CPUs, where it is never timed."
    )
    baselines: dict[str, ReportBaseline] = Field(
        default_factory=dict,
        description="Other runtimes that were asked for (`options.baselines`), by their names.",
    )
    untuned: ReportTiming = Field(description="The untuned network, as TVM compiles it.")
    tuned: ReportTiming = Field(description="The artifact.")
    tuned_is_untuned: bool = Field(
        description="Whether the artifact is the untuned network: it has neither a tuned kernel nor another algorithm. Then `tuned` and "
        "`untuned` are the same samples."
    )
    rejected: ReportTiming | None = Field(
        description="The tuned network at the compile, if it was rejected as too slow."
    )
    alone: ReportKernelSums | None = Field(
        None,
        description="The tuned kernels alone, if they decided whether the artifact uses them, since the compile's timings of the "
        "network did not tell; null if the timings decided.",
    )
    ratios: dict[str, ReportRatio] = Field(
        default_factory=dict,
        description="How many times as fast as `untuned`, `onnxruntime` and the other runtimes the artifact is.",
    )
    speedup_over_untuned: float = Field(description="Median of untuned, divided by the median of tuned.")
    speedup_over_onnxruntime: float | None = Field(description="The same for ONNX Runtime.")
    overlaps_untuned: bool = Field(
        description="Whether the ranges of the samples overlap, so that noise may explain the difference."
    )
    overlaps_onnxruntime: bool | None = Field(description="The same for ONNX Runtime.")
    speedup_over_torch_compile: float | None = Field(None, description="Speedup over `torch.compile`.")
    overlaps_torch_compile: bool | None = Field(
        None, description="Whether the ranges of those samples overlap."
    )

    def others(self) -> dict[str, ReportTiming]:
        """Return the runtimes that were timed, by their names, in the order in which they are listed."""
        timed = {"onnxruntime": self.onnxruntime}
        timed |= {name: baseline.timing for name, baseline in self.baselines.items()}
        timed["torch_compile"] = self.torch_compile
        return {name: timing for name, timing in timed.items() if timing is not None}

    def title(self, name: str) -> str:
        """Return the name of a runtime for people."""
        baseline = self.baselines.get(name)
        return runtime_title(name) if baseline is None else baseline.title


class ReportMeasurement(ReportSection):
    """A measurement of the whole network."""

    measured_at: float = Field(description="When, Unix seconds.")
    device: str | None = Field(description="Name of the device; null if unknown.")
    device_model: str | None = Field(description="Model of the device; null if unknown.")
    at_compile: bool = Field(description="Whether the compile measured it.")
    quiet: bool | None = Field(
        description="Whether other work on the device hardly slowed it; null if unknown."
    )
    shown: bool = Field(
        description="Whether report, pages and lists show this one: the latest quiet one; if none is quiet, the latest. One that "
        "timed fewer networks than the shown one is only listed."
    )
    seconds: dict[str, float] = Field(
        description="Seconds per inference of `tuned` (the artifact), `untuned`, `onnxruntime` and the other runtimes."
    )
    ratios: dict[str, ReportRatio] = Field(
        description="How many times as fast as the others the artifact is."
    )


class ReportNetwork(ReportSection):
    """The whole network as a search compiled and timed it, with its kernels so far."""

    model_config = ConfigDict(from_attributes=True)

    number: int = Field(description="Number of the network in its search; 0 is the untuned one.")
    tasks: int = Field(description="Number of kernels to tune.")
    covered: int = Field(description="Number of those that are tuned in it.")
    latency_sec: float = Field(description="Seconds per inference: the median.")
    low_sec: float | None = Field(description="Lower end of its 95 % interval; null if there is one sample.")
    high_sec: float | None = Field(description="Upper end of it.")
    quiet: bool | None = Field(
        description="Whether other work on the device hardly slowed it; null if unknown."
    )
    device: str | None = Field(description="Name of the device.")
    tuned_sec: float = Field(description="Seconds of search when it was timed.")
    timed_at: float = Field(description="When, Unix seconds.")


class ReportedRecord(ReportSection):
    """The record that a tuned kernel in the artifact comes from."""

    workload_key: str = Field(description="The kernel's computation.")
    name: str = Field(description="The kernel's name in the graph.")
    target_key: str = Field(description="Target that it was measured for.")
    device_model: str = Field(description="Device model that measured it.")
    toolchain: str = Field(description="Compiler version.")
    space_key: str = Field(description="Config space of `config`.")
    config: list[Any] = Field(description="Chosen config.")
    cost_sec: float | None = Field(description="Median seconds per call in its measurement.")
    samples_sec: list[float] = Field(description="Samples of that measurement.")
    measured_at: float = Field(description="Time of measurement, Unix seconds of the worker's clock.")
    tuner: str = Field(description="Search strategy that proposed it.")
    confirmed: bool = Field(
        description="Whether it was confirmed: measured again, in turn with the task's other best configs."
    )
    record_id: str | None = Field(None, description="Record in the farm's history; null if unknown.")
    job_id: str | None = Field(None, description="Job that measured it; null for an imported record.")
    device: str | None = Field(
        None, description="Name of the device that measured it; null if removed or unknown."
    )
    certificate_sha256: str | None = Field(
        None,
        description="SHA-256 of the certificate by which the device's agent was connected; null if unknown.",
    )
    ticket_jti: str | None = Field(
        None,
        description="Identifier of the token that opened the session of the measurement; null if unknown.",
    )


class ReportComparison(ReportSection):
    """Comparison of an output with ONNX Runtime's."""

    name: str = Field(description="The output's name.")
    dtype: str = Field(description="Its element type.")
    ok: bool = Field(description="Whether the output is within the tolerance.")
    max_abs_error: float = Field(description="Largest difference of two finite elements.")
    max_rel_error: float = Field(description="The same, as a share of the output's root mean square.")
    rtol: float = Field(description="Relative tolerance; 0 for integers and booleans.")
    mismatches: int = Field(description="Number of elements outside the tolerance.")
    elements: int = Field(description="Number of elements.")
    comparable: int = Field(
        description="Number of elements that are finite, and that ONNX Runtime's runs agree on."
    )
    message: str = Field(description="Description of the error, if any.")
    width: float = Field(
        0.0,
        description="Median of what an element may differ by, as a share of the root mean square; 0 if `rtol` says it.",
    )
    moved: float = Field(
        0.0,
        description="Largest difference of ONNX Runtime's own runs from the reference, as a share of the root mean square.",
    )
    unsteady: int = Field(
        0,
        description="Number of elements that are not compared, since ONNX Runtime's own runs do not agree on them.",
    )


class ReportInputSet(ReportSection):
    """A set of inputs, and the comparison of the outputs."""

    kind: str = Field(
        description="Distribution of random inputs: `normal`, only `positive` numbers, `image` in 0 to 1, `byte-image` in 0 to 255, "
        "`audio`; `sample` for a sample set of the user's."
    )
    seed: int | None = Field(description="Seed of random inputs; null for a sample set.")
    file: int | None = Field(None, description="Index of the sample set's file; null for random inputs.")
    sample: int | None = Field(
        None, description="Index of the sample set in its file; null for random inputs."
    )
    outputs: list[ReportComparison] = Field(description="Comparison of each output.")


class ReportRuns(ReportSection):
    """The ways in which ONNX Runtime ran the model for the comparison."""

    ways: list[str] = Field(description="What was run on every set of inputs.")
    left_out: list[str] = Field(description="What was not, and why.")
    float64: bool = Field(description="Whether the reference is in float64.")
    probes: int = Field(
        description="Number of layers whose weights were made 0.1 % too large, to try the comparison."
    )
    noticed: int = Field(description="In how many of them the comparison of outputs noticed.")


class ReportPartsCheck(ReportSection):
    """The comparison of the model segment by segment, each on the reference's own values."""

    parts: int = Field(description="Number of segments that were compared; all were right.")
    not_checked: str | None = Field(description="Why nothing was compared; null if something was.")


class ReportSampleFile(ReportSection):
    """A file of samples. The report tells nothing of its contents."""

    sets: int = Field(description="Number of sample sets.")
    used: list[int] = Field(description="Indices of the sample sets that were run.")
    fits: int = Field(0, description="Index of the model's set of shapes that they fit.")


class ReportSamples(ReportSection):
    """The user's samples, and the errors on them."""

    files: list[ReportSampleFile] = Field(description="Files of samples, in the job's order.")
    max_abs_error: float = Field(description="Largest difference of two finite elements.")
    max_rel_error: float = Field(description="The same, as a share of its output's root mean square.")
    mean_rel_error: float = Field(description="Mean difference of the output with the largest one.")


class ReportChecks(ReportSection):
    """Comparison of the artifact's outputs with a reference."""

    reference: str = Field(description="Reference of the comparison.")
    rule: str = Field(description="The tolerance.")
    ok: bool = Field(description="Whether all outputs are within the tolerance.")
    max_abs_error: float = Field(description="Largest difference of all outputs.")
    max_rel_error: float = Field(
        description="Largest difference as a share of its output's root mean square."
    )
    input_sets: list[ReportInputSet] = Field(description="The inputs, and each output.")
    runs: ReportRuns | None = Field(
        None,
        description="How ONNX Runtime was run; null if the model rounds its activations or computes in bfloat16.",
    )
    parts: ReportPartsCheck | None = Field(
        None, description="The check segment by segment; null if the outputs tell enough."
    )
    samples: ReportSamples | None = Field(None, description="The user's samples; null if there are none.")


class ReportAlternative(ReportSection):
    """Another algorithm for a kernel: the time saved by its kernels alone, and the time saved by the network."""

    workload_key: str = Field(description="Content hash of the kernel that it replaces.")
    name: str = Field("", description="That kernel's name in the graph.")
    algorithm: str = Field(description="Which.")
    library: str = Field(
        "", description="Name and version of the library that computes it; empty if none does."
    )
    chosen: bool = Field(description="Whether it is in the artifact.")
    reason: str = Field("", description="Reason if it is not.")
    weight: int = Field(1, description="Calls per inference.")
    direct_sec: float | None = Field(
        None,
        description="Seconds per call of the original kernel, timed alone; null if not timed.",
    )
    sum_sec: float = Field(description="Seconds per call of all kernels of the algorithm, each timed alone.")
    expected_gain_sec: float | None = Field(
        None, description="Seconds per inference that its kernels save, timed alone."
    )
    network_gain_sec: float | None = Field(
        None,
        description="Seconds per inference that the network saves, timed with and without it; null if not timed.",
    )
    border_cost_sec: float | None = Field(
        None,
        description="Difference of the two: the cost at its borders with other kernels. Negative if it saves time "
        "there.",
    )


class ReportUntunable(ReportSection):
    """A kernel that cannot be tuned."""

    name: str = Field(description="Name in the graph.")
    weight: int = Field(description="Calls per inference.")
    reason: str = Field(description="Reason why it cannot be tuned.")


class ReportPlace(ReportSection):
    """The machine on which the compiler checked and timed."""

    device_model: str = Field(description="Device model.")
    this_machine: bool = Field(description="Whether the device is the machine that compiled.")
    threads: int = Field(description="Number of threads of the kernels.")
    seed: int = Field(description="Seed of the first set of inputs, and of the kernels' inputs.")
    system: str | None = Field(description="Operating system; null if it is another machine.")
