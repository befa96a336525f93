"""Time kernels on a GPU: only while the GPU is in a good state, and with caches as within a network.

`offer_state` and `first_gpu` let this process, as a device, tell the state of its own GPU; `state_of` asks a device for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from statistics import mean, median
from typing import Any, TypeVar

import tvm

from tunefarm_tuning.artifact.cuda_runtime import DRIVER
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.reading import state_and_users
from tunefarm_tuning.measure.gpu.state import GPU_STATE, GpuState, busy
from tunefarm_tuning.measure.kernel_timing import Sampler
from tunefarm_tuning.tvm.device.session import DeviceSession

LAUNCH_SEC = 20e-6
"""Upper bound of what the timing of a single call contains besides the kernel, as the GPU waits for the launch."""

LARGE_WEIGHTS_BYTES = 1 << 20
"""Smaller weights are read from a GPU's memory faster than a kernel is launched."""

_PAUSES_SEC = (0.3, 1.0)
"""Pauses before samples are taken again; a slow-down that lasts longer is reported with the samples."""

_L2_BYTES = 64 << 20
_MOST_FLUSHED_BYTES = 1 << 30
_WARM_CALLS = 50
_WARM_SEC = 0.1
"""Upper bound of the warm-up: a long kernel is called less often, because its launch hardly matters."""
_SINGLE_CALLS = 9
_COLD_CALLS = 4

_Taken = TypeVar("_Taken")


def state_of(session: DeviceSession) -> Callable[[], GpuState] | None:
    """Return a function that asks a session's device for the state of its GPU; None if it offers none."""
    try:
        ask = session.function(GPU_STATE)
    except Exception:  # noqa: BLE001  (TVM has many error types; the next call finds out if the session is gone)
        session.check()
        return None

    def read() -> GpuState:
        try:
            state = json.loads(str(ask()))
        except ValueError:
            return GpuState()
        return GpuState.from_json(state) if isinstance(state, dict) else GpuState()

    return None if ask is None else read


def take_steadily(
    read: Callable[[], GpuState],
    take: Callable[[], _Taken],
    *,
    clock_mhz: float | None,
    within_sec: float,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[_Taken, dict[str, Any]]:
    """Take samples, and take them again up to twice while the GPU is slowed down or another process uses it.

    Args:
        read: Returns the state of the GPU.
        take: Takes the samples.
        clock_mhz: The GPU's clock when it was calibrated; None if it is not known.
        within_sec: Samples are taken again only if that would end within this time.
        wait: Sleeps for so many seconds.
        clock: Returns monotonic seconds.

    Returns:
        The last samples, and facts about them: the state of the GPU after and ``before`` them; ``retaken``: how often they were
        taken again; ``slowed``: why they cannot be trusted, if so; ``capped``: how low the clock was under the power cap alone.

    Raises:
        DeviceLostError: ``device-busy`` if another process uses the GPU all the time.
    """
    started = clock()
    retaken = 0
    while True:
        before, began = read(), clock()
        measured = take()
        after, ended = read(), clock()
        slowed = after.held_back(clock_mhz)
        used_by = after.used_by or before.used_by
        if not slowed and not used_by:
            break
        if retaken == len(_PAUSES_SEC):
            break
        pause_sec = _PAUSES_SEC[retaken]
        if ended - started + pause_sec + (ended - began) > within_sec:
            break
        wait(pause_sec)
        retaken += 1
    if used_by:
        raise busy(used_by)
    facts: dict[str, Any] = {**after.to_json(), "before": before.to_json(), "retaken": retaken}
    if slowed:
        facts["slowed"] = slowed
    if capped := after.capped(clock_mhz):
        facts["capped"] = capped
    return measured, {name: value for name, value in facts.items() if value not in (0, {})}


def flush_bytes(l2_bytes: int | None) -> int:
    """Return the number of bytes whose copy flushes a GPU's L2 cache."""
    return min(2 * (l2_bytes or _L2_BYTES), _MOST_FLUSHED_BYTES)


def cold_sampler(
    evaluate: Callable[..., list[float]], *, flush: int, warm: Callable[[float], object] = lambda _: None
) -> Sampler:
    """Return a sampler of calls with a cold L2 cache.

    Each call is timed by itself, after a copy that fills the cache. Its time contains the wait for its launch. That wait is the
    difference between a single warm call and a call of many in a row; it is subtracted, except from the one call that tells
    whether a kernel is worth timing at all.

    Args:
        evaluate: Takes ``number``, ``repeat`` and ``cache_flush_bytes``; returns seconds per call, one per repeat.
        flush: Bytes to copy, as of `flush_bytes`.
        warm: Receives the seconds of a warm call of many in a row.
    """
    known: list[tuple[float, float]] = []

    def launch() -> tuple[float, float]:
        if not known:
            once = evaluate(number=1, repeat=1, cache_flush_bytes=0)[0]
            fitting = max(1, int(_WARM_SEC / max(once, 1e-9)))
            in_a_row = evaluate(number=min(_WARM_CALLS, fitting), repeat=1, cache_flush_bytes=0)[0]
            alone = median(evaluate(number=1, repeat=min(_SINGLE_CALLS, fitting), cache_flush_bytes=0))
            known.append((in_a_row, min(max(alone - in_a_row, 0.0), LAUNCH_SEC)))
            warm(in_a_row)
        return known[0]

    def sample(*, number: int, repeat: int, min_repeat_ms: float) -> list[float]:
        if not known and (number, repeat, min_repeat_ms) == (1, 1, 0):
            return evaluate(number=1, repeat=1, cache_flush_bytes=flush)
        in_a_row, launch_sec = launch()
        calls_per_sample = min(number, _COLD_CALLS)
        calls = evaluate(number=1, repeat=calls_per_sample * repeat, cache_flush_bytes=flush)
        starts = range(0, len(calls), calls_per_sample)
        cold = [mean(calls[start : start + calls_per_sample]) - launch_sec for start in starts]
        return [max(seconds, in_a_row) for seconds in cold]

    return sample


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_UUID_LETTERS = len("GPU-") + 36


def offer_state() -> None:
    """Register the function `GPU_STATE` in this process, unless there is no GPU.

    The driver is asked once, as its first answer can take seconds.
    """
    gpu = first_gpu()
    if not gpu:
        return
    nvml = open_nvml()
    state_and_users(nvml, gpu)
    tvm.register_global_func(GPU_STATE, lambda: state_and_users(nvml, gpu), override=True)


def first_gpu(environment: Mapping[str, str] = os.environ) -> str:
    """Return the UUID (``GPU-...``) of CUDA's first GPU, which TVM uses; empty if there is none.

    CUDA and NVML count GPUs in orders of their own. Starts CUDA in this process where the environment does not name one GPU.
    """
    visible = environment.get(_VISIBLE, "").split(",")[0].strip()
    if visible.startswith("GPU-") and len(visible) == _UUID_LETTERS:
        return visible
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return ""
    gpu, octets = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    # https://docs.nvidia.com/cuda/cuda-driver-api: each returns 0 on success.
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(gpu), 0) or driver.cuDeviceGetUuid(octets, gpu):
        return ""
    return f"GPU-{uuid.UUID(bytes=bytes(octets))}"
