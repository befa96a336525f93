"""The peak of a device: floating-point operations per second, and bytes moved per second."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import DeviceLostError, InvariantError, TransientError
from tunefarm_tuning.core.json_fields import JsonFields, fields_from_json
from tunefarm_tuning.measure.away import raise_lost_or_failed
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.process import Access, ChildFailed, ChildLimits, ChildProcess, ChildTimedOut
from tunefarm_tuning.target.host import host_device_model, num_cores
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key

_MODULE = "tunefarm_tuning.tvm.children.peak"
_KERNELS = "peak-1"
_DTYPES = ("float32", "float64")
_BUILD_SEC = 120.0
_CONNECT_SEC = 15.0
_RUN_SEC = 60.0
_GRACE_SEC = 3.0
_DEFAULT_MEMORY_BYTES = 2 << 30
"""A device's memory if it is unknown."""
_MAX_THREADS = 256
_LEAST_SCALING = 1.3
_MORE_RUNS = 2
"""A doubtful peak is measured this many times more; two threads of one core, for example, stay doubtful."""
_CERTAIN_RUNS = 12
"""After this many measurements no rate is doubtful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(JsonFields):
    """A rate per second: on one core while the others are idle, and on all cores together."""

    one_core: float
    all_cores: float

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rate:
        rate = fields_from_json(cls, data)
        if not all(value > 0 and math.isfinite(value) for value in (rate.one_core, rate.all_cores)):
            raise ValueError(f"no rate: {data}")
        return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth(JsonFields):
    """Bytes per second that a triad moves over arrays of `working_set_bytes` in total."""

    working_set_bytes: int
    bytes_per_sec: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak(JsonFields):
    """The peak rates of a device: the best of several measurements.

    Attributes:
        key: `peak_key`; rates with different keys cannot be compared.
        threads: The number of threads of an "all cores" rate.
        measured_at: Unix time of the last measurement, in seconds.
        flops_per_sec: Floating-point operations per second, of fused multiply-adds in registers (two operations each), by dtype.
        bandwidth: Bytes per second by working set, the smallest first: the last is the memory's, the others are those of caches.
        missing: Why a rate was not measured; empty if all were.
        runs: Number of measurements, of which these rates are the best.
    """

    key: str
    threads: int
    measured_at: float
    flops_per_sec: Mapping[str, Rate] = field(default_factory=dict)
    bandwidth: tuple[Bandwidth, ...] = ()
    missing: str = ""
    runs: int = 1

    def flops_on(self, threads: int, dtype: str) -> float | None:
        """Return the peak floating-point operations per second of a number of threads; None if it was not measured."""
        rate = self.flops_per_sec.get(dtype)
        return None if rate is None else self._on(rate, threads)

    def bandwidth_on(self, threads: int, working_set_bytes: float) -> float | None:
        """Return the peak bytes per second of a number of threads over a working set; None if unknown.

        The rate is that of the next smaller working set that was measured, so it may be too high but not too low. It is unknown
        for a working set smaller than all that were measured.
        """
        rates = [self._on(bandwidth.bytes_per_sec, threads) for bandwidth in self.bandwidth]
        smaller = sum(bandwidth.working_set_bytes <= working_set_bytes for bandwidth in self.bandwidth)
        return max(rates[smaller - 1 :]) if smaller else None

    def memory_bandwidth_on(self, threads: int) -> float | None:
        """Return the peak bytes per second of memory (the largest working set); None if unknown."""
        return self._on(self.bandwidth[-1].bytes_per_sec, threads) if self.bandwidth else None

    def merged(self, other: Peak) -> Peak:
        """Return the better rate of each kind; only `other` if its key or number of threads differs.

        A disturbance only makes a measurement slower: the better rate is closer to the truth.
        """
        if other.key != self.key or other.threads != self.threads:
            return other
        flops = dict(other.flops_per_sec)
        for dtype, rate in self.flops_per_sec.items():
            flops[dtype] = _better(rate, flops.get(dtype, rate))
        rows = {row.working_set_bytes: row.bytes_per_sec for row in other.bandwidth}
        for row in self.bandwidth:
            size = row.working_set_bytes
            rows[size] = _better(row.bytes_per_sec, rows.get(size, row.bytes_per_sec))
        return Peak(
            key=self.key,
            threads=self.threads,
            measured_at=max(self.measured_at, other.measured_at),
            flops_per_sec=flops,
            bandwidth=tuple(
                Bandwidth(working_set_bytes=size, bytes_per_sec=rows[size]) for size in sorted(rows)
            ),
            missing=self.missing and other.missing,
            runs=self.runs + other.runs,
        )

    @property
    def doubtful(self) -> Mapping[str, Rate]:
        """The rates, by dtype, of which all cores reach hardly more than one: others probably used them meanwhile.

        After many measurements it is how the cores are, as two threads of one core, for example.
        """
        if self.threads <= 1 or self.runs >= _CERTAIN_RUNS:
            return {}
        return {
            dtype: rate
            for dtype, rate in self.flops_per_sec.items()
            if rate.all_cores < _LEAST_SCALING * rate.one_core
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Peak:
        """Read what `to_json` wrote.

        Raises:
            ValueError: If a value is missing or has the wrong type.
        """
        try:
            if not {"flops_per_sec", "bandwidth", "missing"} <= data.keys():
                raise ValueError("no rates")
            return fields_from_json(cls, data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not a peak: {str(data)[:80]} ({error})") from error

    def _on(self, rate: Rate, threads: int) -> float:
        if threads <= 1:
            return rate.one_core
        if threads >= self.threads:
            return rate.all_cores
        return min(threads * rate.one_core, rate.all_cores)


def peak_key(target: Target, device_model: str) -> str:
    """Return the key that two peaks must share to be comparable."""
    return f"{_KERNELS}/{target.key}/{device_model}/{toolchain_key()}"


def measure_peak(
    target: Target,
    device: RemoteDevice | None = None,
    *,
    threads: int | None = None,
    memory_bytes: int | None = None,
    cancellation: Cancellation | None = None,
) -> Peak:
    """Measure a device's peak rates, in about two seconds; again, if others seem to have used the device meanwhile.

    Measured are fused multiply-adds in registers, and a triad ``a = b + s * c`` as in STREAM over working sets from the size of
    caches to that of memory; each on one core, then on all. A rate is the best of several samples, and each kernel's result is
    checked.

    Args:
        target: The device's target. A GPU is not measured; `Peak.missing` then says so.
        device: The device; None is this machine.
        threads: The number of threads of "all cores": by default the target's ``num-cores``, else the device's cores.
        memory_bytes: The device's memory, of which an eighth is used at most. By default this machine's, 2 GiB for a device.
        cancellation: Ends the call within seconds, from another thread.

    Returns:
        The rates, and why some are missing.

    Raises:
        DeviceLostError: If the device cannot be reached, its session crashed, or it exceeded its time; with the field ``away`` if its
            connection was lost.
        TransientError: If the process on this machine crashed or exceeded its time.
        InvalidInputError: If the kernels cannot be built for the target on this machine.
    """
    # Imported late, since it imports NumPy: the API, which only stores peaks, runs without NumPy.
    from tunefarm_tuning.process.scratch import ScratchDir

    key = peak_key(target, host_device_model() if device is None else device.info.model)
    threads = min(threads or _threads(target, device), _MAX_THREADS)
    if target.kind != "llvm":
        return Peak(
            key=key, threads=threads, measured_at=time.time(), missing="the peak of a GPU is not measured"
        )
    if memory_bytes is None:
        own_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory_bytes = _DEFAULT_MEMORY_BYTES if device is not None else own_bytes
    cancellation = cancellation or Cancellation()
    with closing(ScratchDir()) as scratch, ExitStack() as stack:
        access = Access(
            writes=(scratch.path,), device=None if device is None else device.address, programs=True
        )
        child = ChildProcess(
            _MODULE,
            limits=ChildLimits(memory_bytes=None) if device is None else ChildLimits(),
            access=access,
            env={"TVM_NUM_THREADS": str(threads), "TMPDIR": str(scratch.path)},
        )
        stack.enter_context(closing(child))
        stack.enter_context(cancellation.attach(child))
        built_in = {
            "target": target.to_json(),
            "threads": threads,
            "dtypes": list(_DTYPES),
            "work_dir": str(scratch.path),
        }
        built = child.call("build", built_in, timeout_sec=_BUILD_SEC)
        peak = _read(key, threads, built, _run(child, device, memory_bytes, cancellation))
        for _ in range(_MORE_RUNS):
            if not peak.doubtful:
                break
            peak = peak.merged(_read(key, threads, built, _run(child, device, memory_bytes, cancellation)))
    return replace(peak, runs=1)


def _run(
    child: ChildProcess, device: RemoteDevice | None, memory_bytes: int, cancellation: Cancellation
) -> Mapping[str, Any]:
    lost = TransientError if device is None else DeviceLostError
    try:
        reply: Mapping[str, Any] = child.call(
            "run",
            {
                "address": None if device is None else device.opening(child.relay_key),
                "timeout_sec": _RUN_SEC,
                "connect_timeout_sec": _CONNECT_SEC,
                "memory_bytes": memory_bytes,
            },
            timeout_sec=_CONNECT_SEC + _RUN_SEC + _GRACE_SEC,
        )
    except ChildTimedOut as error:
        raise lost("the measurement of its peak did not end in time") from error
    except (ChildFailed, InvariantError) as error:
        raise lost(f"the measurement of its peak failed: {error.message}") from error
    except DeviceLostError as error:
        if device is None:
            raise
        raise_lost_or_failed(error, device, cancellation)
    return reply


def _read(key: str, threads: int, built: Mapping[str, Any], reply: Mapping[str, Any]) -> Peak:
    def rate(by_threads: Mapping[str, Any]) -> Rate:
        one_core, all_cores = float(by_threads["1"]), float(by_threads[str(threads)])
        # All cores are at least as fast as one: a lower rate was disturbed.
        return Rate(one_core=one_core, all_cores=max(one_core, all_cores))

    reasons = []
    if built["missing"]:
        details = "; ".join(f"{dtype}: {why}" for dtype, why in built["missing"].items())
        reasons.append(f"its target has no fused multiply-adds (name its CPU with -mcpu): {details}")
    if not reply["bandwidth"]:
        reasons.append("bandwidth: the device has too little memory to distinguish it from a cache")
    return Peak(
        key=key,
        threads=threads,
        measured_at=time.time(),
        flops_per_sec={
            dtype: rate({n: max(samples) for n, samples in by_threads.items()})
            for dtype, by_threads in reply["flops_per_sec"].items()
        },
        bandwidth=tuple(
            Bandwidth(
                working_set_bytes=int(row["working_set_bytes"]), bytes_per_sec=rate(row["bytes_per_sec"])
            )
            for row in reply["bandwidth"]
        ),
        missing="; ".join(reasons),
    )


def _threads(target: Target, device: RemoteDevice | None) -> int:
    named = target.get("num-cores")
    if isinstance(named, int) and named > 0:
        return named
    return num_cores() if device is None else device.info.num_cores


def _better(rate: Rate, other: Rate) -> Rate:
    return Rate(one_core=max(rate.one_core, other.one_core), all_cores=max(rate.all_cores, other.all_cores))
