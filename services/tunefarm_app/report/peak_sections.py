"""The sections of a job's report on the device's peak, which the API's schema of a device shares."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tunefarm_app.report.sections import ReportSection

PEAK_FLOPS = "Floating-point operations by element type; a fused multiply-add counts as two."
"""Description of a peak's rates, which the API's schema of a device's peak shares, as it does the fields below."""

PeakTime = Annotated[float, Field(description="Time of the last measurement, Unix seconds.")]
PeakMissing = Annotated[str, Field(description="Reason for a missing figure; empty if all are present.")]
Intensity = Annotated[
    float | None,
    Field(description="Arithmetic intensity: operations per byte of minimal traffic; null if unknown."),
]
ShareOfBound = Annotated[float | None, Field(description="Share of the roofline that it reaches.")]
MemoryBound = Annotated[bool | None, Field(description="Whether bandwidth is the bound.")]


class ReportRate(ReportSection):
    """A rate per second."""

    one_core: float = Field(description="Rate on one core, with the others idle.")
    all_cores: float = Field(description="Rate on all cores together.")


class ReportPeak(ReportSection):
    """The device's peak, measured by the farm: the best value of each figure up to the compile."""

    threads: int = Field(description="Number of all cores.")
    measured_at: PeakTime
    flops_per_sec: dict[str, ReportRate] = Field(description=PEAK_FLOPS)
    memory_bytes_per_sec: ReportRate | None = Field(
        description="Bytes moved by a triad over arrays larger than usual caches; null if not measured."
    )
    missing: PeakMissing


class ReportRoofline(ReportSection):
    """Efficiency of a kernel against the device's peak. Figures that were not measured are null."""

    flops_per_sec: float = Field(
        description="Floating-point operations per second of the kernel in the artifact, if timed alone, else of the "
        "job's fastest config."
    )
    peak_flops_per_sec: float | None = Field(
        description="Peak of the device on as many threads, in the kernel's element type; null if not measured."
    )
    share_of_peak: float | None = Field(description="Ratio of the two.")
    intensity: Intensity
    bound_flops_per_sec: float | None = Field(
        description="Roofline: the lower of the peak and the intensity times the bandwidth of the smallest level that "
        "holds its data (Williams et al. 2009)."
    )
    share_of_bound: ShareOfBound
    memory_bound: MemoryBound
