"""Times kernels in a session: one by itself, or several in turn.

On a CPU it works where the kernels run, as `kernel_check` does: a device offers `TIMING_FUNCTIONS` to sessions, so that a kernel costs two remote
calls and not some twenty-five, each of which takes as long as the way there and back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import numpy as np
import numpy.ma  # TVM takes a median of samples, for which numpy imports it: 40 ms in each session of a device
import tvm

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.kernel_timing import Sampler, TimingPlan, time_adaptively, time_interleaved
from tunefarm_tuning.tvm.device import gpu
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session
from tunefarm_tuning.workload.task import TensorSpec

TIME_KERNEL = "tunefarm.time_kernel"
TIME_IN_TURN = "tunefarm.time_kernels_in_turn"
"""The names under which a session calls them: JSON in, JSON out, as `time_kernel` and `time_in_turn`; or ``{"error"}``."""

_INDEX_DTYPES = frozenset({"int16", "uint16", "int32", "uint32", "int64", "uint64"})

_LARGE_WEIGHTS_BYTES = {"cpu": 256 << 10, "cuda": gpu.LARGE_WEIGHTS_BYTES}
_COLD_CALLS = 4
_FLUSH = "cache_flush_cpu_non_first_arg"
"""TVM's function that flushes caches on x86 and Arm, and does nothing elsewhere; AutoTVM's ``enable_cpu_cache_flush`` used it."""

_MOST_ANSWER, _MOST_ERROR = 1 << 20, 2000

# The arguments of the last kernel by their description: the next kernel usually has the same workload. They belong to this
# process or to the open session.
_args: tuple[str, list[Any]] | None = None

_Taken = TypeVar("_Taken")


def time_kernel(session: DeviceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    """Time the kernel ``path`` on a session, briefly if it is hopeless (`time_adaptively`): ``samples_sec``, ``truncated``, ``facts``."""
    if (reply := _timed_there(session, TIME_KERNEL, params)) is not None:
        samples = checked_samples(reply["samples_sec"])
        if not isinstance(reply["truncated"], bool):
            raise RuntimeError("the device does not say whether timing ended early")
        return {"samples_sec": samples, "truncated": reply["truncated"], "facts": {}}
    device = session.device(params["kind"])
    kernel = session.load(params["path"])
    args = _arguments(session, device, params)
    device.sync()
    caches: dict[str, Any] = {}
    sample = _sampler(kernel, device, args, params, caches)
    (samples, truncated), facts = _steadily(
        session, params, lambda: time_adaptively(sample, _plan(params), params["rival_sec"])
    )
    return {
        "samples_sec": checked_samples(samples),
        "truncated": truncated,
        "facts": _of_gpu({**facts, **caches}),
    }


def time_in_turn(session: DeviceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    """Time the kernels ``paths`` in turn: ``samples_sec`` of each, ``facts``."""
    if (reply := _timed_there(session, TIME_IN_TURN, params)) is not None:
        if [len(of_kernel) for of_kernel in reply["samples_sec"]] != [params["rounds"]] * len(
            params["paths"]
        ):
            raise RuntimeError("the device did not time each kernel in each round")
        return {
            "samples_sec": [checked_samples(of_kernel) for of_kernel in reply["samples_sec"]],
            "facts": {},
        }
    device = session.device(params["kind"])
    kernels = [session.load(path) for path in params["paths"]]
    args = _arguments(session, device, params)
    device.sync()
    samplers = [_sampler(kernel, device, args, params, {}) for kernel in kernels]
    samples, facts = _steadily(
        session, params, lambda: time_interleaved(samplers, _plan(params), params["rounds"])
    )
    return {
        "samples_sec": [checked_samples(kernel_samples) for kernel_samples in samples],
        "facts": _of_gpu(facts),
    }


def forget_arguments() -> None:
    """Let go of what belongs to a session."""
    global _args
    _args = None


def _timed_there(session: DeviceSession, name: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Have the device time kernels; None if it does not offer that, or that is here."""
    if session.is_local or params["kind"] != "cpu" or (function := session.offered(name)) is None:
        return None
    files: dict[str, Any] = (
        {"path": session.upload(params["path"])}
        if "path" in params
        else {"paths": [session.upload(path) for path in params["paths"]]}
    )
    text = str(function(json.dumps({**params, **files})))
    if len(text) > _MOST_ANSWER:
        raise RuntimeError(f"the device answered {len(text)} characters")
    reply: dict[str, Any] = json.loads(text)
    if "error" in reply:
        raise RuntimeError(clean(str(reply["error"]), _MOST_ERROR))
    return reply


def _offered(work: Callable[[DeviceSession, dict[str, Any]], dict[str, Any]]) -> Callable[[str], str]:
    def call(request: str) -> str:
        params = json.loads(str(request))
        if "path" in params:
            params["path"] = str(Path(params["path"]).absolute())
        else:
            params["paths"] = [str(Path(path).absolute()) for path in params["paths"]]
        try:
            return json.dumps(work(local_session(), params))
        except Exception as error:  # noqa: BLE001  (TVM has many error types)
            return json.dumps({"error": f"{type(error).__name__}: {error}"[:_MOST_ERROR]})

    return call


TIMING_FUNCTIONS = {TIME_KERNEL: _offered(time_kernel), TIME_IN_TURN: _offered(time_in_turn)}
"""What every device offers, by name. Files are those that the session uploaded."""


def _steadily(
    session: DeviceSession, params: Mapping[str, Any], take: Callable[[], _Taken]
) -> tuple[_Taken, dict[str, Any]]:
    read = gpu.state_of(session) if params["kind"] == "cuda" else None
    if read is None:
        return take(), {}
    return gpu.take_steadily(read, take, clock_mhz=params["clock_mhz"], within_sec=params["retake_sec"])


def _of_gpu(facts: dict[str, Any]) -> dict[str, Any]:
    return {"gpu": facts} if facts else {}


def _plan(params: Mapping[str, Any]) -> TimingPlan:
    return TimingPlan(
        repeat=params["repeat"],
        number=params["number"],
        min_repeat_ms=params["min_repeat_ms"],
        max_timing_ms=params["max_timing_ms"],
        launch_sec=gpu.LAUNCH_SEC if params["kind"] == "cuda" else 0.0,
    )


def _runs_cold(params: Mapping[str, Any]) -> bool:
    """Return whether a kernel reads its weights from memory, and not from a cache, when it runs within its network.

    Between two calls the network pushes large weights out of the caches. Timed again and again on cached weights, a kernel
    with a poor access pattern would look as good as one that streams.
    """
    weights = [spec for spec in map(TensorSpec.from_json, params["args"]) if spec.constant]
    size_bytes = sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in weights)
    return size_bytes >= _LARGE_WEIGHTS_BYTES[params["kind"]]


def _sampler(
    kernel: Any, device: Any, args: list[Any], params: Mapping[str, Any], caches: dict[str, Any]
) -> Sampler:
    """Return a function that times the kernel; for a GPU it notes the state of the caches in `caches`."""
    cold = _runs_cold(params)
    if params["kind"] == "cuda":
        caches["l2"] = "cold" if cold else "warm"

    # The evaluator calls the kernel once before it starts to count, which covers lazy initialisation.
    def sample(*, number: int, repeat: int, min_repeat_ms: float) -> list[float]:
        evaluator = kernel.time_evaluator(
            "main", device, number=number, repeat=repeat, min_repeat_ms=ceil(min_repeat_ms)
        )
        # TVM's floats are objects that JSON cannot write.
        return [float(sample) for sample in evaluator(*args).results]

    def cold_sample(*, number: int, repeat: int, min_repeat_ms: float) -> list[float]:  # noqa: ARG001
        # Every call is timed by itself, with all arguments but the first out of the caches. For a call that reads large weights
        # from memory a few calls are exact enough, even where they take less than `min_repeat_ms`.
        calls_per_sample = min(number, _COLD_CALLS)
        evaluator = kernel.time_evaluator(
            "main", device, number=1, repeat=calls_per_sample * repeat, f_preproc=_FLUSH
        )
        calls = [float(sample) for sample in evaluator(*args).results]
        starts = range(0, len(calls), calls_per_sample)
        return [mean(calls[start : start + calls_per_sample]) for start in starts]

    def evaluate(*, number: int, repeat: int, cache_flush_bytes: int) -> list[float]:
        evaluator = kernel.time_evaluator(
            "main", device, number=number, repeat=repeat, cache_flush_bytes=cache_flush_bytes
        )
        return [float(sample) for sample in evaluator(*args).results]

    if cold and params["kind"] == "cuda":
        flush = gpu.flush_bytes(device.l2_cache_size_bytes)
        return gpu.cold_sampler(evaluate, flush=flush, warm=lambda seconds: caches.update(warm_sec=seconds))
    return cold_sample if cold else sample


def checked_samples(samples: Sequence[float]) -> list[float]:
    """Return seconds as numbers, which those of a device need not be.

    Raises:
        RuntimeError: If they are none, or no times.
    """
    if not samples or not all(0 < sample < float("inf") for sample in samples):
        raise RuntimeError(f"the timings make no sense: {samples[:3]}")
    return [float(sample) for sample in samples]


def _arguments(session: DeviceSession, device: Any, params: Mapping[str, Any]) -> list[Any]:
    global _args
    key = f"{params['kind']} {params['args']}"
    if _args is None or _args[0] != key:
        _args = None  # first, so that old and new arguments are never in memory together
        specs = [TensorSpec.from_json(spec) for spec in params["args"]]
        _args = (key, random_arguments(session, device, specs))
    return _args[1]


def random_arguments(session: DeviceSession, device: Any, specs: Sequence[TensorSpec]) -> list[Any]:
    """Return one tensor on the device for each spec, filled at random.

    Floats are drawn on the device, between 1 and 10: denormals would cost time, and other numbers could become NaN.
    Integers that may be indices are 0, which is always in range; generated code checks no bounds.
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
