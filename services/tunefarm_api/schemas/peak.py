"""Schemas of device peaks and rooflines."""

from __future__ import annotations

from pydantic import Field

from tunefarm_api.schemas.base import Output
from tunefarm_app.report.peak_sections import (
    PEAK_FLOPS,
    Intensity,
    MemoryBound,
    PeakMissing,
    PeakTime,
    ReportRate,
    ShareOfBound,
)


class PeakRate(ReportRate, Output):
    """A rate per second."""


class PeakBandwidth(Output):
    """Bandwidth for a working set."""

    working_set_bytes: int = Field(description="Bytes of the arrays that were read and written.")
    bytes_per_sec: PeakRate = Field(description="Bytes read and written per second.")


class DevicePeak(Output):
    """Peak of a device: the best of each figure over all measurements."""

    key: str = Field(description="Method and hardware of the measurement.")
    threads: int = Field(description="Number of cores of `all_cores`.")
    measured_at: PeakTime
    flops_per_sec: dict[str, PeakRate] = Field(description=PEAK_FLOPS)
    bandwidth: list[PeakBandwidth] = Field(
        description="Bandwidth by working set: the last is the memory's, the others are those of caches."
    )
    missing: PeakMissing
    runs: int = Field(description="Number of measurements.")


class Roofline(Output):
    """Efficiency of a kernel's best config against its device's peak. Figures that were not measured are null."""

    flops_per_sec: float = Field(description="Floating-point operations per second.")
    peak_flops_per_sec: float | None = Field(
        description="Peak of the device on all cores, in the kernel's element type; null if not measured."
    )
    share_of_peak: float | None = Field(
        description="Ratio of the two. It can slightly exceed 1, since clocks vary."
    )
    intensity: Intensity
    bound_flops_per_sec: float | None = Field(
        description="Roofline: the lower of the peak and the intensity times the bandwidth of the smallest level that "
        "holds its data."
    )
    share_of_bound: ShareOfBound
    memory_bound: MemoryBound
