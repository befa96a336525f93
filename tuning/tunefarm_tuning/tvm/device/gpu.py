"""Timing on a GPU: in a state in which the timing means something, and with its memory's caches as a network finds them."""

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
from tunefarm_tuning.measure.adaptive_timing import Sampler
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.state import GPU_STATE, GpuState, busy
from tunefarm_tuning.measure.gpu.users import state_and_users
from tunefarm_tuning.tvm.device.session import DeviceSession

LAUNCH_SEC = 20e-6
"""What the timing of a single call can have beside the kernel: the GPU waits for the launch. No more than this."""

LARGE_WEIGHTS_BYTES = 1 << 20
"""Smaller ones are read from a GPU's memory in less time than a launch takes."""

_PAUSES_SEC = (0.3, 1.0)
"""Before a sample is taken again; what still holds the GPU back then is told beside the samples."""

_L2_BYTES = 64 << 20
_MOST_FLUSHED_BYTES = 1 << 30
_WARM_CALLS = 50
_WARM_SEC = 0.1
"""Of a kernel that takes long, fewer are called: beside it a launch is nothing."""
_SINGLE_CALLS = 9
_COLD_CALLS = 4

_Taken = TypeVar("_Taken")


def state_of(session: DeviceSession) -> Callable[[], GpuState] | None:
    """Return what asks the session's device how its GPU is; None where it does not tell."""
    try:
        ask = session.function(GPU_STATE)
    except Exception:  # noqa: BLE001  (TVM's many; the session may be gone too, which the next call finds out)
        return None

    def read() -> GpuState:
        try:
            told = json.loads(str(ask()))
        except ValueError:
            return GpuState()
        return GpuState.from_json(told) if isinstance(told, dict) else GpuState()

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
    """Take samples, and take them again, twice at most, while the GPU is held back or another's.

    Args:
        read: Tells how the GPU is.
        take: Takes the samples.
        clock_mhz: The GPU's clock when it was calibrated, where that is known.
        within_sec: Nothing is taken again that would not end within this.
        wait: Lets seconds pass.
        clock: Monotonic seconds.

    Returns:
        What was taken last, and the facts of it: the state of the GPU after it and ``before``; ``retaken``, how often it was
        taken again; ``slowed``, why it cannot be believed, where that is so all the same; ``capped``, how low the clock was
        under the power cap alone.

    Raises:
        DeviceLostError: ``device-busy`` if the GPU is another's all the time.
    """
    started = clock()
    retaken = 0
    while True:
        before, began = read(), clock()
        taken = take()
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
    return taken, {name: value for name, value in facts.items() if value not in (0, {})}


def flush_bytes(l2_bytes: int | None) -> int:
    """Return how much has to be copied for nothing to be left in a GPU's L2 cache."""
    return min(2 * (l2_bytes or _L2_BYTES), _MOST_FLUSHED_BYTES)


def cold_sampler(
    evaluate: Callable[..., list[float]], *, flush: int, warm: Callable[[float], object] = lambda _: None
) -> Sampler:
    """Return what times calls that find nothing in the GPU's L2 cache.

    Each call is timed by itself, after a copy that fills the cache. The GPU waits for such a call's launch, and that is in its
    time: as much as a single call that finds its data in the cache takes longer than one of many in a row. It is taken off,
    but from the one call that says whether a kernel is worth to be timed at all.

    Args:
        evaluate: Takes ``number``, ``repeat`` and ``cache_flush_bytes``; returns seconds per call, one per repeat.
        flush: See `flush_bytes`.
        warm: Is told the seconds of a call of many in a row.
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
        each = min(number, _COLD_CALLS)
        calls = evaluate(number=1, repeat=each * repeat, cache_flush_bytes=flush)
        cold = [mean(calls[first : first + each]) - launch_sec for first in range(0, len(calls), each)]
        return [max(one, in_a_row) for one in cold]

    return sample


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_UUID_LETTERS = len("GPU-") + 36


def offer_state() -> None:
    """Register what `DeviceSession.function` finds under `GPU_STATE`, unless there is no GPU.

    The driver is asked once: its first answer can take seconds.
    """
    gpu = first_gpu()
    if not gpu:
        return
    nvml = open_nvml()
    state_and_users(nvml, gpu)
    tvm.register_global_func(GPU_STATE, lambda: state_and_users(nvml, gpu), override=True)


def first_gpu(environment: Mapping[str, str] = os.environ) -> str:
    """Return the UUID (``GPU-...``) of CUDA's first GPU, which is TVM's too; empty where there is none.

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
    # https://docs.nvidia.com/cuda/cuda-driver-api: each returns 0 where all is well.
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(gpu), 0) or driver.cuDeviceGetUuid(octets, gpu):
        return ""
    return f"GPU-{uuid.UUID(bytes=bytes(octets))}"
