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
from collections.abc import Callable
from typing import Any, TypeVar

import tvm
from tvm import relax

from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import DeviceLostError, InvariantError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.gpu.cuda_errors import is_devices_fault, poisons, setups_fault
from tunefarm_tuning.measure.gpu.state import BUSY
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.measure.timing_blocks import inferences_of_sample
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.tvm.device import gpu
from tunefarm_tuning.tvm.device.kernel_times import (
    checked_samples,
    forget_arguments,
    time_in_turn,
    time_kernel,
)
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session, open_session
from tunefarm_tuning.tvm.device.watching import loop_of_machine, state_of_machine

_LEAST_NETWORK_SAMPLES = 3
_MOST_NETWORK_SAMPLES = 30
_session: DeviceSession | None = None


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
    global _session
    if _session is not None:
        forget_arguments()
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
    return time_kernel(session, params)


@span("time kernels in turn", SpanKind.TIMING)
def _interleaved_samples(session: DeviceSession, params: dict[str, Any]) -> dict[str, Any]:
    return time_in_turn(session, params)


@span("time the network so far", SpanKind.TIMING)
def _network_samples(session: DeviceSession, params: dict[str, Any]) -> dict[str, Any]:
    device = session.device(params["kind"])
    session.function("runtime.config_threadpool")(0, params["threads"])
    threads = int(session.function("runtime.NumThreads")())
    machine = relax.VirtualMachine(session.load_network(params["path"], threads), device)
    machine.set_input("main", *(tvm.runtime.tensor(array, device) for array in load_arrays(params["inputs"])))
    device.sync()

    def sample(number: int) -> float:
        timer = machine.time_evaluator("invoke_stateful", device, number=number, repeat=1)
        return checked_samples([float(timer("main").results[0])])[0]

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
