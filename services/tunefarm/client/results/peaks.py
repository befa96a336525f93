"""What the server answers about what devices can do at their best, and how near kernels are to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tunefarm.client.results.fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """How near a kernel is to what its device can do. What was not measured is None.

    Attributes:
        flops_per_sec: Floating-point operations per second.
        peak_flops_per_sec: What a device of the kind can do on all cores.
        share_of_peak: The one by the other.
        bound_flops_per_sec: The roofline: the peak, or what bandwidth allows if that is less.
        share_of_bound: How much of that it reaches.
        memory_bound: Whether bandwidth is what bounds it.
    """

    flops_per_sec: float
    peak_flops_per_sec: float | None
    share_of_peak: float | None
    bound_flops_per_sec: float | None
    share_of_bound: float | None
    memory_bound: bool | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self | None:
        """Return what the server said; None where it said nothing."""
        if data is None:
            return None
        f = Fields(data, "roofline")
        return cls(
            flops_per_sec=f.number("flops_per_sec"),
            peak_flops_per_sec=f.optional_number("peak_flops_per_sec"),
            share_of_peak=f.optional_number("share_of_peak"),
            bound_flops_per_sec=f.optional_number("bound_flops_per_sec"),
            share_of_bound=f.optional_number("share_of_bound"),
            memory_bound=None if f.data.get("memory_bound") is None else f.flag("memory_bound"),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """What a device can do at its best: of each figure, the best that was ever measured.

    Attributes:
        threads: How many cores "all cores" are.
        measured_at: When it was measured last, Unix seconds.
        flops_per_sec: Floating-point operations by element type: on one core, on all cores.
        memory_bytes_per_sec: Of data that fit into no cache: on one core, on all cores; None where that was not measured.
        missing: Why a figure is not there; empty where all are.
    """

    threads: int
    measured_at: float
    flops_per_sec: Mapping[str, tuple[float, float]]
    memory_bytes_per_sec: tuple[float, float] | None
    missing: str
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self | None:
        """Return what the server said; None where it said nothing."""
        if data is None:
            return None
        f = Fields(data, "peak")
        rows = [Fields(row, "bandwidth") for row in f.items("bandwidth")]
        return cls(
            threads=f.integer("threads"),
            measured_at=f.number("measured_at", 0.0),
            flops_per_sec={dtype: _rate(rate) for dtype, rate in f.mapping("flops_per_sec").items()},
            memory_bytes_per_sec=_rate(rows[-1].mapping("bytes_per_sec")) if rows else None,
            missing=f.text("missing", ""),
            raw=f.data,
        )


def _rate(data: object) -> tuple[float, float]:
    f = Fields(data, "rate")
    return f.number("one_core"), f.number("all_cores")
