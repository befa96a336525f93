"""How near a kernel is to what its device can do: the roofline model.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model for Multicore
Architectures", CACM 52(4), 2009. A kernel does at most ``min(peak, intensity * bandwidth)`` operations per second, where its
intensity is its operations per byte that has to be moved. A kernel that is timed by itself finds its data where the last
call left them: so the bandwidth is that of the cache that holds them all, as in the cache-aware variant (A. Ilic, F. Pratas,
L. Sousa, "Cache-aware Roofline model: Upgrading the loft", IEEE CAL 13(1), 2014).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.workload.computation import Access, Computation

_DISPROVED = 1.1
"""A kernel that does so many times as much as a figure allows shows that the device was busy when that was measured."""

_ITEMSIZE = {
    "bool": 1,
    **{f"{kind}{bits}": bits // 8 for kind in ("int", "uint", "float", "bfloat") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Where a kernel stands. What was not measured is None, never a guess; so is what the kernel itself disproves.

    Attributes:
        flops_per_sec: What it does.
        peak_flops_per_sec: What its device could do, on as many threads.
        intensity: Operations per byte that it has to move at the least.
        bound_flops_per_sec: What it could do at the most: the peak, or what the bandwidth allows if that is less. None unless both
            are known, and of data that fit into faster caches than were measured, unless the slower ones would do for the peak.
        memory_bound: Whether the bandwidth is what bounds it.
    """

    flops_per_sec: float
    peak_flops_per_sec: float | None = None
    intensity: float | None = None
    bound_flops_per_sec: float | None = None
    memory_bound: bool | None = None

    @property
    def share_of_peak(self) -> float | None:
        """How much of the peak it reaches. A little over 1 is possible: clocks change between two measurements."""
        return self.flops_per_sec / self.peak_flops_per_sec if self.peak_flops_per_sec else None

    @property
    def share_of_bound(self) -> float | None:
        """How much of its bound it reaches."""
        return self.flops_per_sec / self.bound_flops_per_sec if self.bound_flops_per_sec else None

    def to_json(self) -> dict[str, Any]:
        return {
            "flops_per_sec": self.flops_per_sec,
            "peak_flops_per_sec": self.peak_flops_per_sec,
            "share_of_peak": self.share_of_peak,
            "intensity": self.intensity,
            "bound_flops_per_sec": self.bound_flops_per_sec,
            "share_of_bound": self.share_of_bound,
            "memory_bound": self.memory_bound,
        }


def roofline(
    flops: float,
    cost_sec: float | None,
    *,
    peak: Peak | None = None,
    threads: int = 1,
    dtype: str | None = None,
    moved_bytes: float | None = None,
) -> Roofline | None:
    """Return where a kernel stands; None where it was not timed, or does no floating-point operations.

    Args:
        flops: Floating-point operations of one call.
        cost_sec: Seconds of one call.
        peak: Of the very kind of device that it was timed on; None where it was not measured.
        threads: What it ran on.
        dtype: What it computes in; None where that is mixed or not known.
        moved_bytes: What a call has to move at the least; see `kernel_bytes`.
    """
    if not cost_sec or not flops or cost_sec < 0 or flops < 0:
        return None
    rate = flops / cost_sec
    intensity = flops / moved_bytes if moved_bytes else None
    most = _unless_disproved(peak.flops_on(threads, dtype), rate) if peak and dtype is not None else None
    if peak is None or most is None or intensity is None or not moved_bytes or not peak.bandwidth:
        return Roofline(flops_per_sec=rate, peak_flops_per_sec=most, intensity=intensity)
    bandwidth = peak.bandwidth_on(threads, moved_bytes)
    if bandwidth is None:
        # It fits into caches that are faster than any that was measured: the peak is the bound if those would do already.
        slower = peak.bandwidth_on(threads, peak.bandwidth[0].working_set_bytes)
        if slower is None or intensity * slower < most:
            return Roofline(flops_per_sec=rate, peak_flops_per_sec=most, intensity=intensity)
        bandwidth = slower
    bound = _unless_disproved(min(most, intensity * bandwidth), rate)
    if bound is None:
        return Roofline(flops_per_sec=rate, peak_flops_per_sec=most, intensity=intensity)
    return Roofline(
        flops_per_sec=rate,
        peak_flops_per_sec=most,
        intensity=intensity,
        bound_flops_per_sec=bound,
        memory_bound=bound < most,
    )


def _unless_disproved(most: float | None, rate: float) -> float | None:
    return None if most is None or rate > _DISPROVED * most else most


def kernel_bytes(args: Iterable[Mapping[str, Any]], computation: Computation | None = None) -> int | None:
    """Return the bytes that one call of a kernel has to move at the least; None where that is not known.

    Each byte of a distinct buffer is read or written once: what its arguments (`TensorSpec.to_json`) add up to, or what the loops of its
    main block touch where that is less (a strided window passes over numbers).
    """
    sizes = [_size_bytes(arg) for arg in args]
    known = [one for one in sizes if one is not None]
    candidates = [sum(known)] if known and len(known) == len(sizes) else []
    if computation is not None and computation.accesses:
        candidates.append(sum(_touched_bytes(one, computation) for one in computation.accesses))
    return min(candidates, default=None)


def kernel_dtype(args: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the floating-point type of a kernel's arguments; None where there are several, or none."""
    found = {str(arg.get("dtype", "")) for arg in args}
    floats = {one for one in found if one.startswith(("float", "bfloat"))}
    return floats.pop() if len(floats) == 1 else None


def _size_bytes(arg: Mapping[str, Any]) -> int | None:
    itemsize = _ITEMSIZE.get(str(arg.get("dtype")))
    return None if itemsize is None else itemsize * prod(int(dim) for dim in arg.get("shape", ()))


def _touched_bytes(access: Access, computation: Computation) -> int:
    """Return how many bytes of a tensor the loops come to: no more than all combinations, nor than the range of each index."""
    touched = 1
    for dim in access.dims:
        extents = [computation.axes[axis].extent for axis, _ in dim]
        reach = 1 + sum((computation.axes[axis].extent - 1) * abs(stride) for axis, stride in dim)
        touched *= min(prod(extents), reach)
    return access.itemsize_bytes * touched
