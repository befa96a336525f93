"""Child process: times kernels, here or over RPC.

Over RPC a measurement is two calls, `connect` and `measure` (or `measure_interleaved`): so the parent can tell a
device that is away from a kernel that takes too long.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from math import ceil, prod
from statistics import mean
from typing import Any, TypeVar

import numpy as np
import tvm

from tunefarm_tuning.core.errors import DeviceLostError, InvariantError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.adaptive_timing import Sampler, TimingPlan, time_adaptively, time_interleaved
from tunefarm_tuning.measure.gpu.cuda_errors import is_devices_fault, poisons, setups_fault
from tunefarm_tuning.measure.gpu.state import BUSY
from tunefarm_tuning.tvm.device import gpu
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session, open_session
from tunefarm_tuning.workload.task import TensorSpec

_INDEX_DTYPES = frozenset({"int16", "uint16", "int32", "uint32", "int64", "uint64"})

_LARGE_WEIGHTS_BYTES = {"cpu": 256 << 10, "cuda": gpu.LARGE_WEIGHTS_BYTES}
_COLD_CALLS = 4
_FLUSH = "cache_flush_cpu_non_first_arg"
"""TVM's own, for x86 and Arm; elsewhere it does nothing. AutoTVM's ``enable_cpu_cache_flush`` (TVM v0.19) is the same."""

_session: DeviceSession | None = None
# The arguments of the last kernel, by what they are: the next one is of the same workload as a rule. They are of this
# process, or of the open session.
_args: tuple[str, list[Any]] | None = None


def connect(params: dict[str, Any]) -> dict[str, Any]:
    """Open a session: ``{"address", "timeout_sec", "connect_timeout_sec"}``.

    It lasts until a measurement that is not to keep it, or that fails, or `hang_up`.

    Returns ``{"host", "port"}``: where the device listens.
    """
    global _session
    hang_up({})
    _session = open_session(
        params["address"],
        timeout_sec=params["timeout_sec"],
        connect_timeout_sec=params["connect_timeout_sec"],
    )
    if params["address"]["kind"] == "cuda" and (read := gpu.state_of(_session)) is not None:
        read()  # a driver's first answer can take seconds, which are no candidate's
    return {"host": _session.host, "port": _session.port}


def meet_gpu(params: dict[str, Any]) -> None:  # noqa: ARG001  (a handler's signature)
    """Let this process ask how its own GPU is; before any candidate's clock runs."""
    gpu.offer_state()


def hang_up(params: dict[str, Any]) -> None:  # noqa: ARG001  (a handler's signature)
    """Close the session, if there is one."""
    global _session, _args
    if _session is not None:
        _args = None
        _session.close()
        _session = None


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """Time a kernel on the open session, as long as it is worth it.

    Takes ``{"path", "rival_sec", "args", "kind", "repeat", "number", "min_repeat_ms", "max_timing_ms", "clock_mhz", "retake_sec"}``
    (the last two are of `gpu.take_steadily`), and ``"keep"``: whether the session shall stay open. Returns
    ``{"samples_sec", "truncated", "facts"}``, or ``{"failure": [outcome, message]}``; with ``"session_lost": true`` where the
    other side went away in the middle, with ``"poisoned": true`` where nothing more can run in this session, or in this very
    process where that was its device; with ``"not_at_work": true`` where the candidate has no part in it: somebody else uses the
    device, or nothing runs there as its machine is set up.
    """
    return _over_rpc(_samples, params)


def measure_interleaved(params: dict[str, Any]) -> dict[str, Any]:
    """Time kernels in turn on the open session: parameters of `measure`, but ``"paths"`` and ``"rounds"``.

    Returns ``{"samples_sec", "facts"}``, a list for each kernel, or a failure as `measure` does: of one of them.
    """
    return _over_rpc(_interleaved_samples, params)


def measure_here(params: dict[str, Any]) -> dict[str, Any]:
    """Time a kernel in this process; parameters and answer as those of `measure`."""
    return _measure(local_session(), _samples, params)


def measure_interleaved_here(params: dict[str, Any]) -> dict[str, Any]:
    """Time kernels in turn in this process; parameters and answer as those of `measure_interleaved`."""
    return _measure(local_session(), _interleaved_samples, params)


_Taken = TypeVar("_Taken")
_Work = Callable[[DeviceSession, dict[str, Any]], dict[str, Any]]


def _over_rpc(work: _Work, params: dict[str, Any]) -> dict[str, Any]:
    if _session is None:
        raise InvariantError("no session is open")
    keep = False
    try:
        reply = _measure(_session, work, params)
        keep = params.get("keep", False) and "failure" not in reply
    finally:
        if not keep:
            hang_up({})
    if "failure" in reply:
        gc.collect()  # the error's traceback may hold on to the connection, and so keep the device busy
    return reply


def _measure(session: DeviceSession, work: _Work, params: dict[str, Any]) -> dict[str, Any]:
    try:
        return work(session, params)
    except MemoryError:
        raise
    except DeviceLostError as error:
        return {"failure": [Outcome.INFRASTRUCTURE_ERROR, error.message], "not_at_work": error.code == BUSY}
    except Exception as error:  # noqa: BLE001  (TVM's many; a candidate that does not run is data)
        whole = str(error)
        text = f"{type(error).__name__}: {clean(whole, 500)}"
        if "RPCSessionTimeoutError" in text:
            return {"failure": [Outcome.RUN_TIMEOUT, "the device ended the session: its time was over"]}
        if (reason := setups_fault(whole)) is not None:
            message = f"{reason} ({text})"
            return {"failure": [Outcome.INFRASTRUCTURE_ERROR, message], "poisoned": True, "not_at_work": True}
        if is_devices_fault(whole):
            return {"failure": [Outcome.INFRASTRUCTURE_ERROR, text], "poisoned": True}
        if poisons(whole):
            return {"failure": [Outcome.RUN_ERROR, text], "poisoned": True}
        if session.is_alive():
            return {"failure": [Outcome.RUN_ERROR, text]}
        return {"failure": [Outcome.RUN_CRASH, text], "session_lost": True}


def _samples(session: DeviceSession, params: dict[str, Any]) -> dict[str, Any]:
    device = session.device(params["kind"])
    kernel = session.load(params["path"])
    args = _arguments(session, device, params)
    device.sync()
    caches: dict[str, Any] = {}
    sample = _sampler(kernel, device, args, params, caches)
    (samples, truncated), facts = _steadily(
        session, params, lambda: time_adaptively(sample, _plan(params), params["rival_sec"])
    )
    return {"samples_sec": _checked(samples), "truncated": truncated, "facts": _of_gpu({**facts, **caches})}


def _interleaved_samples(session: DeviceSession, params: dict[str, Any]) -> dict[str, Any]:
    device = session.device(params["kind"])
    kernels = [session.load(path) for path in params["paths"]]
    args = _arguments(session, device, params)
    device.sync()
    samplers = [_sampler(kernel, device, args, params, {}) for kernel in kernels]
    samples, facts = _steadily(
        session, params, lambda: time_interleaved(samplers, _plan(params), params["rounds"])
    )
    return {"samples_sec": [_checked(of_one) for of_one in samples], "facts": _of_gpu(facts)}


def _steadily(
    session: DeviceSession, params: dict[str, Any], take: Callable[[], _Taken]
) -> tuple[_Taken, dict[str, Any]]:
    read = gpu.state_of(session) if params["kind"] == "cuda" else None
    if read is None:
        return take(), {}
    return gpu.take_steadily(read, take, clock_mhz=params["clock_mhz"], within_sec=params["retake_sec"])


def _of_gpu(facts: dict[str, Any]) -> dict[str, Any]:
    return {"gpu": facts} if facts else {}


def _plan(params: dict[str, Any]) -> TimingPlan:
    return TimingPlan(
        repeat=params["repeat"],
        number=params["number"],
        min_repeat_ms=params["min_repeat_ms"],
        max_timing_ms=params["max_timing_ms"],
        launch_sec=gpu.LAUNCH_SEC if params["kind"] == "cuda" else 0.0,
    )


def _runs_cold(params: dict[str, Any]) -> bool:
    """Return whether a kernel finds its weights in memory, and not in a cache, when it runs within its network.

    All that the network does between two calls pushes large weights out. Timed again and again on the same ones, a kernel
    that crawls through memory looks as good as one that streams.
    """
    weights = [spec for spec in map(TensorSpec.from_json, params["args"]) if spec.constant]
    size_bytes = sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in weights)
    return size_bytes >= _LARGE_WEIGHTS_BYTES[params["kind"]]


def _sampler(
    kernel: Any, device: Any, args: list[Any], params: dict[str, Any], caches: dict[str, Any]
) -> Sampler:
    """Return what times the kernel; notes in `caches`, of a GPU, how its caches are meanwhile."""
    cold = _runs_cold(params)
    if params["kind"] == "cuda":
        caches["l2"] = "cold" if cold else "warm"

    # The evaluator calls the kernel once before it starts to count: lazy initialisation is over then.
    def sample(*, number: int, repeat: int, min_repeat_ms: float) -> list[float]:
        evaluator = kernel.time_evaluator(
            "main", device, number=number, repeat=repeat, min_repeat_ms=ceil(min_repeat_ms)
        )
        # TVM's floats are objects of its own, which JSON does not know.
        return [float(one) for one in evaluator(*args).results]

    def cold_sample(*, number: int, repeat: int, min_repeat_ms: float) -> list[float]:  # noqa: ARG001
        # Every call is timed by itself, its arguments but the first out of all caches. That is exact enough for a call which
        # reads large weights from memory; as many as fill the shortest sample are not needed.
        each = min(number, _COLD_CALLS)
        evaluator = kernel.time_evaluator("main", device, number=1, repeat=each * repeat, f_preproc=_FLUSH)
        calls = [float(one) for one in evaluator(*args).results]
        return [mean(calls[first : first + each]) for first in range(0, len(calls), each)]

    def evaluate(*, number: int, repeat: int, cache_flush_bytes: int) -> list[float]:
        evaluator = kernel.time_evaluator(
            "main", device, number=number, repeat=repeat, cache_flush_bytes=cache_flush_bytes
        )
        return [float(one) for one in evaluator(*args).results]

    if cold and params["kind"] == "cuda":
        flush = gpu.flush_bytes(device.l2_cache_size_bytes)
        return gpu.cold_sampler(evaluate, flush=flush, warm=lambda seconds: caches.update(warm_sec=seconds))
    return cold_sample if cold else sample


def _checked(samples: list[float]) -> list[float]:
    if not all(0 < one < float("inf") for one in samples):
        raise RuntimeError(f"the timings make no sense: {samples[:3]}")
    return samples


def _arguments(session: DeviceSession, device: Any, params: dict[str, Any]) -> list[Any]:
    global _args
    key = f"{params['kind']} {params['args']}"
    if _args is None or _args[0] != key:
        _args = None  # first, so that both are never in memory
        specs = [TensorSpec.from_json(spec) for spec in params["args"]]
        _args = (key, random_arguments(session, device, specs))
    return _args[1]


def random_arguments(session: DeviceSession, device: Any, specs: Sequence[TensorSpec]) -> list[Any]:
    """Return one tensor on the device per spec, filled at random.

    Floats are drawn on the device, between 1 and 10: no denormals, which would cost time, and nothing to become NaN.
    Integers that may be indices are 0, which is in range everywhere; generated code checks no bounds.
    """
    fill = session.function("tvm.contrib.random.random_fill")
    args = []
    for spec in specs:
        tensor = tvm.runtime.empty(spec.shape, spec.dtype, device)
        if spec.dtype in _INDEX_DTYPES:
            tensor.copyfrom(np.zeros(spec.shape, dtype=spec.dtype))
        else:
            fill(tensor)
        args.append(tensor)
    return args


HANDLERS = {
    one.__name__: one
    for one in (
        connect,
        hang_up,
        meet_gpu,
        measure,
        measure_here,
        measure_interleaved,
        measure_interleaved_here,
    )
}
