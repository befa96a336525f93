"""The roofline model: how close a kernel is to the peak of its device.

A kernel does at most ``min(peak, intensity * bandwidth)`` operations per second, where its intensity is its operations per byte
that it must move. A kernel that is timed by itself finds its data where the last call left them: the bandwidth is that of the
cache that holds all of them, as in the cache-aware variant.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model for Multicore
Architectures", CACM 52(4), 2009; A. Ilic, F. Pratas, L. Sousa, "Cache-aware Roofline model: Upgrading the loft", IEEE CAL
13(1), 2014.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.workload.computation import Access, Computation

DISPROVED = 1.1
"""A kernel that exceeds a peak by this factor disproves it: the device was busy when its peak was measured."""

_ITEMSIZE = {
    "bool": 1,
    **{f"{kind}{bits}": bits // 8 for kind in ("int", "uint", "float", "bfloat") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A kernel's rate beside its bounds. A bound that was not measured, or that the kernel exceeds, is None, never a guess.

    Attributes:
        flops_per_sec: Floating-point operations per second of the kernel.
        peak_flops_per_sec: The device's peak on the same number of threads.
        intensity: Operations per byte that the kernel must move.
        bound_flops_per_sec: The most that the kernel can reach: the peak, or the bandwidth's limit if that is less. None
            unless peak and bandwidth are known. If its data fit into a faster cache than was measured, the bound is known only
            if the slower cache already allows the peak.
        memory_bound: Whether the bandwidth bounds the kernel, not the peak.
    """

    flops_per_sec: float
    peak_flops_per_sec: float | None = None
    intensity: float | None = None
    bound_flops_per_sec: float | None = None
    memory_bound: bool | None = None

    @property
    def share_of_peak(self) -> float | None:
        """The share of the peak that the kernel reaches. It may be slightly above 1, since clocks change between measurements."""
        return self.flops_per_sec / self.peak_flops_per_sec if self.peak_flops_per_sec else None

    @property
    def share_of_bound(self) -> float | None:
        """The share of its bound that the kernel reaches."""
        return self.flops_per_sec / self.bound_flops_per_sec if self.bound_flops_per_sec else None

    def to_json(self) -> dict[str, Any]:
        """Return rates, bounds and shares as JSON values."""
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
    """Place a kernel in the roofline model.

    Args:
        flops: Floating-point operations of one call.
        cost_sec: Seconds of one call; None if the kernel was not timed.
        peak: The peak of the same kind of device that the kernel was timed on; None if it was not measured.
        threads: The number of threads that the kernel ran on.
        dtype: The dtype that it computes in; None if mixed or unknown.
        moved_bytes: The bytes that a call must move (see `kernel_bytes`); None if unknown.

    Returns:
        The kernel's rate and bounds; None if it was not timed, or does no floating-point operations.
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
        # The data fit into a faster cache than was measured: the peak is the bound if the slower cache already allows it.
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
    return None if most is None or rate > DISPROVED * most else most


def kernel_bytes(args: Iterable[Mapping[str, Any]], computation: Computation | None = None) -> int | None:
    """Return the bytes that one call of a kernel must move; None if unknown.

    Every byte of a distinct buffer is read or written once. The result is the size of all arguments, or of what the loops of the
    main block access if that is less: a strided window skips elements.

    Args:
        args: The kernel's arguments, as `TensorSpec.to_json` writes them.
        computation: The loops and accesses of its main block, if known.
    """
    sizes = [_size_bytes(arg) for arg in args]
    known = [size for size in sizes if size is not None]
    candidates = [sum(known)] if known and len(known) == len(sizes) else []
    if computation is not None and computation.accesses:
        candidates.append(sum(_touched_bytes(access, computation) for access in computation.accesses))
    return min(candidates, default=None)


def kernel_dtype(args: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the floating-point dtype of a kernel's arguments; None if there are several, or none."""
    dtypes = {str(arg.get("dtype", "")) for arg in args}
    floats = {dtype for dtype in dtypes if dtype.startswith(("float", "bfloat"))}
    return floats.pop() if len(floats) == 1 else None


def _size_bytes(arg: Mapping[str, Any]) -> int | None:
    itemsize = _ITEMSIZE.get(str(arg.get("dtype")))
    return None if itemsize is None else itemsize * prod(int(dim) for dim in arg.get("shape", ()))


def _touched_bytes(access: Access, computation: Computation) -> int:
    """Return how many bytes of a tensor the loops access: at most all index combinations, and at most each index's range."""
    touched = 1
    for dim in access.dims:
        extents = [computation.axes[axis].extent for axis, _ in dim]
        reach = 1 + sum((computation.axes[axis].extent - 1) * abs(stride) for axis, stride in dim)
        touched *= min(prod(extents), reach)
    return access.itemsize_bytes * touched
