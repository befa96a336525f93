"""Child process: times kernels, in this process or over RPC.

Over RPC a measurement is two calls, `connect` and `measure` (or `measure_interleaved`), so that the parent can tell a
device that cannot be reached from a kernel that takes too long.

Handlers:

- `connect`: ``address``, ``timeout_sec``, ``connect_timeout_sec`` -> ``host``, ``port`` where the device listens, the gateway's ``receipt``. The session lasts
  until `hang_up`, or a measurement that fails or has no ``keep``.
- `hang_up`: {} -> null.
- `meet_gpu`: {} -> null. Lets this process ask the state of its own GPU.
- `measure`, `measure_here`: ``path`` (library), ``rival_sec``, ``args`` (specs), ``kind``, ``repeat``, ``number``, ``min_repeat_ms``,
  ``max_timing_ms``; ``clock_mhz``, ``retake_sec`` (`gpu.take_steadily`); ``keep``: whether the session stays open
  -> ``samples_sec``, ``truncated``, ``facts``.
- `measure_interleaved`, `measure_interleaved_here`: as `measure`, but ``paths`` and ``rounds`` for ``path`` and ``rival_sec``
  -> ``samples_sec`` (a list for each kernel), ``facts``.
- `time_network`: ``path`` (library), ``inputs`` (file), ``kind``, ``threads``, ``sampling_sec`` -> ``threads``, ``inferences`` a sample,
  ``samples_sec``; of each sample ``watched`` (`Watched`) and ``loops_sec`` (of the yardstick loop before it), null where unknown.

If a measurement fails, the answer is ``failure``: outcome, message and, if the device failed, the error's code; and flags that apply: ``session_lost``: the
other side went away; ``poisoned``: nothing more can run in this session, or in this process if it is the device;
``not_at_work``: the candidate is not to blame, as another process uses the device or its machine is not set up.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from math import ceil, prod
from statistics import mean
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import DeviceLostError, InvariantError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.gpu.cuda_errors import is_devices_fault, poisons, setups_fault
from tunefarm_tuning.measure.gpu.state import BUSY
from tunefarm_tuning.measure.kernel_timing import Sampler, TimingPlan, time_adaptively, time_interleaved
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.measure.timing_blocks import inferences_of_sample
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.tvm.device import gpu
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session, open_session
from tunefarm_tuning.tvm.device.watching import loop_of_machine, state_of_machine
from tunefarm_tuning.workload.task import TensorSpec

_INDEX_DTYPES = frozenset({"int16", "uint16", "int32", "uint32", "int64", "uint64"})

_LARGE_WEIGHTS_BYTES = {"cpu": 256 << 10, "cuda": gpu.LARGE_WEIGHTS_BYTES}
_COLD_CALLS = 4
_LEAST_NETWORK_SAMPLES = 3
_MOST_NETWORK_SAMPLES = 30
_FLUSH = "cache_flush_cpu_non_first_arg"
"""TVM's function that flushes caches on x86 and Arm, and does nothing elsewhere; AutoTVM's ``enable_cpu_cache_flush`` used it."""

_session: DeviceSession | None = None
# The arguments of the last kernel by their description: the next kernel usually has the same workload. They belong to this
# process or to the open session.
_args: tuple[str, list[Any]] | None = None


def connect(params: dict[str, Any]) -> dict[str, Any]:
    """Open a session.

    Raises:
        DeviceLostError: As of `open_session` and `DeviceSession.setting_up`.
    """
    global _session
    hang_up({})
    session = open_session(
        params["address"],
        timeout_sec=params["timeout_sec"],
        connect_timeout_sec=params["connect_timeout_sec"],
    )
    with session.setting_up():
        if params["address"]["kind"] == "cuda" and (read := gpu.state_of(session)) is not None:
            read()  # a driver's first answer can take seconds, which must not count as a candidate's time
    _session = session
    return {"host": session.host, "port": session.port, "receipt": session.receipt}


def meet_gpu(_params: dict[str, Any]) -> None:
    """Let this process ask for the state of its GPU before any candidate's time starts."""
    gpu.offer_state()


def hang_up(_params: dict[str, Any]) -> None:
    """Close the session, if there is one."""
    global _session, _args
    if _session is not None:
        _args = None
        _session.close()
        _session = None


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """Time a kernel on the open session, briefly if it is hopeless (`time_adaptively`)."""
    return _over_rpc(_samples, params)


def measure_interleaved(params: dict[str, Any]) -> dict[str, Any]:
    """Time kernels in turn on the open session."""
    return _over_rpc(_interleaved_samples, params)


def time_network(params: dict[str, Any]) -> dict[str, Any]:
    """Time a whole network on the open session, for about ``sampling_sec``."""
    return _over_rpc(_network_samples, params)


def measure_here(params: dict[str, Any]) -> dict[str, Any]:
    """Time a kernel in this process."""
    return _measure(local_session(), _samples, params)


def measure_interleaved_here(params: dict[str, Any]) -> dict[str, Any]:
    """Time kernels in turn in this process."""
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
        gc.collect()  # the error's traceback may keep the connection open, and so the device busy
    return reply


def _measure(session: DeviceSession, work: _Work, params: dict[str, Any]) -> dict[str, Any]:
    try:
        return work(session, params)
    except MemoryError:
        raise
    except DeviceLostError as error:
        return {**_lost(error), "not_at_work": error.code == BUSY}
    except Exception as error:  # noqa: BLE001  (TVM has many error types; a candidate that does not run is data)
        message = str(error)
        text = f"{type(error).__name__}: {clean(message, 500)}"
        try:
            session.check()
        except DeviceLostError as lost:
            return _lost(lost)
        if "RPCSessionTimeoutError" in text:
            return {"failure": [Outcome.RUN_TIMEOUT, "the device ended the session: its time was over"]}
        if (reason := setups_fault(message)) is not None:
            failure = [Outcome.INFRASTRUCTURE_ERROR, f"{reason} ({text})"]
            return {"failure": failure, "poisoned": True, "not_at_work": True}
        if is_devices_fault(message):
            return {"failure": [Outcome.INFRASTRUCTURE_ERROR, text], "poisoned": True}
        if poisons(message):
            return {"failure": [Outcome.RUN_ERROR, text], "poisoned": True}
        try:
            if session.is_alive():
                return {"failure": [Outcome.RUN_ERROR, text]}
        except DeviceLostError as lost:
            return _lost(lost)
        return {"failure": [Outcome.RUN_CRASH, text], "session_lost": True}


def _lost(error: DeviceLostError) -> dict[str, Any]:
    return {"failure": [Outcome.INFRASTRUCTURE_ERROR, error.message, error.code]}


@span("time a candidate", SpanKind.TIMING)
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


@span("time kernels in turn", SpanKind.TIMING)
def _interleaved_samples(session: DeviceSession, params: dict[str, Any]) -> dict[str, Any]:
    device = session.device(params["kind"])
    kernels = [session.load(path) for path in params["paths"]]
    args = _arguments(session, device, params)
    device.sync()
    samplers = [_sampler(kernel, device, args, params, {}) for kernel in kernels]
    samples, facts = _steadily(
        session, params, lambda: time_interleaved(samplers, _plan(params), params["rounds"])
    )
    return {"samples_sec": [_checked(kernel_samples) for kernel_samples in samples], "facts": _of_gpu(facts)}


@span("time the network so far", SpanKind.TIMING)
def _network_samples(session: DeviceSession, params: dict[str, Any]) -> dict[str, Any]:
    device = session.device(params["kind"])
    session.function("runtime.config_threadpool")(0, params["threads"])
    threads = int(session.function("runtime.NumThreads")())
    machine = relax.VirtualMachine(session.load(params["path"]), device)
    machine.set_input("main", *(tvm.runtime.tensor(array, device) for array in load_arrays(params["inputs"])))
    device.sync()

    def sample(number: int) -> float:
        timer = machine.time_evaluator("invoke_stateful", device, number=number, repeat=1)
        return _checked([float(timer("main").results[0])])[0]

    first_sec = sample(1)
    until = time.monotonic() + params["sampling_sec"]
    inferences = inferences_of_sample(first_sec)
    samples: list[float] = []
    watched: list[dict[str, Any] | None] = []
    loops: list[float | None] = []
    while len(samples) < _LEAST_NETWORK_SAMPLES or (
        len(samples) < _MOST_NETWORK_SAMPLES and time.monotonic() < until
    ):
        loops.append(loop_of_machine(session))
        before = state_of_machine(session)
        samples.append(sample(inferences))
        stretch = Watched.between(before, state_of_machine(session))
        watched.append(None if stretch is None else stretch.to_json())
    return {
        "threads": threads,
        "inferences": inferences,
        "samples_sec": samples,
        "watched": watched,
        "loops_sec": loops,
    }


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
    """Return whether a kernel reads its weights from memory, and not from a cache, when it runs within its network.

    Between two calls the network pushes large weights out of the caches. Timed again and again on cached weights, a kernel
    with a poor access pattern would look as good as one that streams.
    """
    weights = [spec for spec in map(TensorSpec.from_json, params["args"]) if spec.constant]
    size_bytes = sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in weights)
    return size_bytes >= _LARGE_WEIGHTS_BYTES[params["kind"]]


def _sampler(
    kernel: Any, device: Any, args: list[Any], params: dict[str, Any], caches: dict[str, Any]
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


def _checked(samples: list[float]) -> list[float]:
    if not all(0 < sample < float("inf") for sample in samples):
        raise RuntimeError(f"the timings make no sense: {samples[:3]}")
    return samples


def _arguments(session: DeviceSession, device: Any, params: dict[str, Any]) -> list[Any]:
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


HANDLERS: Handlers = {
    "connect": connect,
    "hang_up": hang_up,
    "meet_gpu": meet_gpu,
    "measure": measure,
    "time_network": time_network,
    "measure_here": measure_here,
    "measure_interleaved": measure_interleaved,
    "measure_interleaved_here": measure_interleaved_here,
}
