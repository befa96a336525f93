"""What a device can do at its best: floating-point operations per second, and bytes moved per second."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import DeviceLostError, InvariantError, TransientError
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.process import ChildFailed, ChildLimits, ChildProcess, ChildTimedOut
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
_SOME_MEMORY_BYTES = 2 << 30
"""Taken for a device's memory where nobody says how much it has."""
_MOST_THREADS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Something per second: on one core while the others rest, and on all cores together."""

    one_core: float
    all_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Bytes per second of a triad over arrays of `working_set_bytes` in all."""

    working_set_bytes: int
    bytes_per_sec: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The best of several measurements of a device.

    Attributes:
        key: What was measured; figures under different keys are of different things.
        threads: What "all cores" are.
        measured_at: When, in Unix seconds.
        flops_per_sec: Of fused multiply-adds in registers (two operations each), by element type.
        bandwidth: By working set, the smallest first: the last is the memory's, the others are of caches.
        missing: Why a figure is not there; empty where all are.
        runs: How many measurements these figures are the best of.
    """

    key: str
    threads: int
    measured_at: float
    flops_per_sec: Mapping[str, Rate] = field(default_factory=dict)
    bandwidth: tuple[Bandwidth, ...] = ()
    missing: str = ""
    runs: int = 1

    def flops_on(self, threads: int, dtype: str) -> float | None:
        """Return the operations per second that so many threads can do; None where it was not measured."""
        rate = self.flops_per_sec.get(dtype)
        return None if rate is None else self._on(rate, threads)

    def bandwidth_on(self, threads: int, working_set_bytes: float) -> float | None:
        """Return the bytes per second that so many threads can move of a working set; None where that is not known.

        It is the rate of the next smaller working set that was measured, so that it is rather too high than too low. Of one that
        is smaller than all of them, nothing is known.
        """
        rates = [self._on(one.bytes_per_sec, threads) for one in self.bandwidth]
        smaller = sum(one.working_set_bytes <= working_set_bytes for one in self.bandwidth)
        return max(rates[smaller - 1 :]) if smaller else None

    def memory_bandwidth_on(self, threads: int) -> float | None:
        """Return the bytes per second of the largest working set; None where that is not known."""
        return self._on(self.bandwidth[-1].bytes_per_sec, threads) if self.bandwidth else None

    def merged(self, other: Peak) -> Peak:
        """Return the better of each figure; `other` alone where it is of something else.

        What disturbs a measurement makes it slower, never faster: so the better is the truer.
        """
        if other.key != self.key or other.threads != self.threads:
            return other
        flops = dict(other.flops_per_sec)
        for dtype, rate in self.flops_per_sec.items():
            flops[dtype] = _better(rate, flops.get(dtype, rate))
        rows = {one.working_set_bytes: one.bytes_per_sec for one in other.bandwidth}
        for one in self.bandwidth:
            size = one.working_set_bytes
            rows[size] = _better(one.bytes_per_sec, rows.get(size, one.bytes_per_sec))
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

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "threads": self.threads,
            "measured_at": self.measured_at,
            "flops_per_sec": {dtype: _rate_json(rate) for dtype, rate in self.flops_per_sec.items()},
            "bandwidth": [
                {"working_set_bytes": one.working_set_bytes, "bytes_per_sec": _rate_json(one.bytes_per_sec)}
                for one in self.bandwidth
            ],
            "missing": self.missing,
            "runs": self.runs,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Peak:
        """Read what `to_json` wrote.

        Raises:
            ValueError: If it is not such an object.
        """
        try:
            return cls(
                key=str(data["key"]),
                threads=int(data["threads"]),
                measured_at=float(data["measured_at"]),
                flops_per_sec={str(name): _rate(rate) for name, rate in data["flops_per_sec"].items()},
                bandwidth=tuple(
                    Bandwidth(
                        working_set_bytes=int(one["working_set_bytes"]),
                        bytes_per_sec=_rate(one["bytes_per_sec"]),
                    )
                    for one in data["bandwidth"]
                ),
                missing=str(data["missing"]),
                runs=int(data.get("runs", 1)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not a peak: {str(data)[:80]} ({error})") from error

    def _on(self, rate: Rate, threads: int) -> float:
        if threads <= 1:
            return rate.one_core
        if threads >= self.threads:
            return rate.all_cores
        return min(threads * rate.one_core, rate.all_cores)


def peak_key(target: Target, device_model: str) -> str:
    """Return what peaks have to share to be of the same thing."""
    return f"{_KERNELS}/{target.key}/{device_model}/{toolchain_key()}"


def measure_peak(
    target: Target,
    device: RemoteDevice | None = None,
    *,
    threads: int | None = None,
    memory_bytes: int | None = None,
    cancellation: Cancellation | None = None,
) -> Peak:
    """Measure what a device can do at its best. Nobody else should be using it: it takes about two seconds.

    Fused multiply-adds in registers, and a triad ``a = b + s * c`` as in STREAM, over working sets from caches to memory;
    each on one core, then on all. Each figure is the best of several samples, and each kernel's answer is checked.

    Args:
        target: What the device runs. Of a GPU nothing is measured, and the answer says so.
        device: None is this machine.
        threads: What "all cores" are: the target's ``num-cores`` by default, else what the device's kernels run on.
        memory_bytes: The device's memory: an eighth of it is used at most.
        cancellation: Ends the call within seconds.

    Raises:
        DeviceLostError: If the device cannot be reached, its session crashed, or it was not done in time.
        TransientError: If this machine's own process crashed, or was not done in time.
        InvalidInputError: If the kernels cannot be built for the target here.
    """
    # Its package brings NumPy, which the API, that only keeps what was measured, has no need of.
    from tunefarm_tuning.process.scratch import ScratchDir

    key = peak_key(target, host_device_model() if device is None else device.info.model)
    threads = min(threads or _threads(target, device), _MOST_THREADS)
    if target.kind != "llvm":
        return Peak(
            key=key, threads=threads, measured_at=time.time(), missing="the peak of a GPU is not measured"
        )
    if memory_bytes is None:
        memory_bytes = _SOME_MEMORY_BYTES if device is not None else _own_memory_bytes()
    limits = ChildLimits(memory_bytes=None)
    with (
        closing(ScratchDir()) as scratch,
        closing(ChildProcess(_MODULE, limits=limits, env={"TVM_NUM_THREADS": str(threads)})) as child,
        (cancellation or Cancellation()).attach(child),
    ):
        built_in = {
            "target": target.to_json(),
            "threads": threads,
            "dtypes": list(_DTYPES),
            "work_dir": str(scratch.path),
        }
        built = child.call("build", built_in, timeout_sec=_BUILD_SEC)
        reply = _run(child, device, memory_bytes)
    return _read(key, threads, built, reply)


def _run(child: ChildProcess, device: RemoteDevice | None, memory_bytes: int) -> Mapping[str, Any]:
    lost = TransientError if device is None else DeviceLostError
    try:
        reply: Mapping[str, Any] = child.call(
            "run",
            {
                "address": None if device is None else device.to_json(),
                "timeout_sec": _RUN_SEC,
                "connect_timeout_sec": _CONNECT_SEC,
                "memory_bytes": memory_bytes,
            },
            timeout_sec=_CONNECT_SEC + _RUN_SEC + _GRACE_SEC,
        )
    except ChildTimedOut as error:
        raise lost("its peak was not measured in time") from error
    except (ChildFailed, InvariantError) as error:
        raise lost(f"measuring its peak failed: {error.message}") from error
    return reply


def _read(key: str, threads: int, built: Mapping[str, Any], reply: Mapping[str, Any]) -> Peak:
    def rate(by_threads: Mapping[str, Any]) -> Rate:
        one, every = float(by_threads["1"]), float(by_threads[str(threads)])
        # All cores can do what one of them can: where they seem not to, something disturbed them.
        return Rate(one_core=one, all_cores=max(one, every))

    reasons = []
    if built["missing"]:
        told = "; ".join(f"{dtype}: {why}" for dtype, why in built["missing"].items())
        reasons.append(f"its target has no fused multiply-adds (one that names its CPU has: -mcpu): {told}")
    if not reply["bandwidth"]:
        reasons.append("bandwidth: the device has too little memory to tell it from a cache's")
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


def _own_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _better(one: Rate, other: Rate) -> Rate:
    return Rate(one_core=max(one.one_core, other.one_core), all_cores=max(one.all_cores, other.all_cores))


def _rate_json(rate: Rate) -> dict[str, float]:
    return {"one_core": rate.one_core, "all_cores": rate.all_cores}


def _rate(data: Mapping[str, Any]) -> Rate:
    found = Rate(one_core=float(data["one_core"]), all_cores=float(data["all_cores"]))
    if not all(one > 0 and math.isfinite(one) for one in (found.one_core, found.all_cores)):
        raise ValueError(f"no rate: {data}")
    return found
