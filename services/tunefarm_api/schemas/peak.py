"""Schemas of device peaks and rooflines."""

from __future__ import annotations

from pydantic import Field

from tunefarm_api.schemas.base import Output


class PeakRate(Output):
    """Something per second."""

    one_core: float = Field(description="On one core, while the others rest.")
    all_cores: float = Field(description="On all cores together.")


class PeakBandwidth(Output):
    """How fast data move that take up so many bytes."""

    working_set_bytes: int = Field(description="Bytes of the arrays that were gone over.")
    bytes_per_sec: PeakRate = Field(description="Bytes read and written per second.")


class DevicePeak(Output):
    """What a device can do at its best: of each figure, the best that was ever measured."""

    key: str = Field(description="What it was measured with, and of what.")
    threads: int = Field(description="How many cores `all_cores` are.")
    measured_at: float = Field(description="When it was measured last, Unix seconds.")
    flops_per_sec: dict[str, PeakRate] = Field(
        description="Floating-point operations of fused multiply-adds, two each, by element type."
    )
    bandwidth: list[PeakBandwidth] = Field(
        description="By working set: the last is the memory's, the others are of caches."
    )
    missing: str = Field(description="Why a figure is not there; empty where all are.")
    runs: int = Field(description="How many measurements these figures are the best of.")


class Roofline(Output):
    """How near a kernel's best is to what its device can do. What was not measured is null."""

    flops_per_sec: float = Field(description="Floating-point operations per second.")
    peak_flops_per_sec: float | None = Field(
        description="What a device of the kind can do on all cores, in the kernel's element type; null where that was not "
        "measured."
    )
    share_of_peak: float | None = Field(
        description="The one by the other. A little over 1 is possible: clocks change."
    )
    intensity: float | None = Field(
        description="Operations per byte that has to be moved at the least; null where that is not known."
    )
    bound_flops_per_sec: float | None = Field(
        description="The roofline: the peak, or the intensity times the bandwidth of where its data fit, if that is less."
    )
    share_of_bound: float | None = Field(description="How much of that it reaches.")
    memory_bound: bool | None = Field(description="Whether bandwidth is what bounds it.")
