"""Child process of `measure.peak`: builds the kernels of a device's peak, runs them on it, checks their results, times them.

Handlers, in this order:

- `loops`: ``target``, ``threads``, ``dtypes`` -> ``loops``: by dtype the assembly of its multiply-add loop; ``missing``: by dtype why
  there is none; ``vector_bytes`` of the target. Nothing is linked.
- `build`: as `loops`, and ``work_dir`` -> as `loops`.
- `run`: ``address`` (null for this process), ``timeout_sec``, ``connect_timeout_sec``, ``memory_bytes`` -> ``flops_per_sec``: samples by
  dtype and threads; ``bandwidth``: a row for each working set with ``working_set_bytes`` and ``bytes_per_sec`` by threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.process.sandbox import give_up_programs
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.device_code import export
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session, open_session
from tunefarm_tuning.tvm.kernels.peak import (
    CHAINS,
    ITEMSIZE,
    STEPS,
    assembly_of,
    build_kernels,
    fma_loop,
    fma_module,
    triad_module,
    triad_step,
    vector_bytes,
)

_BATCH = 20
_MOST_SEC = 0.3
"""Maximum seconds per figure; an idle machine needs less."""
_GAIN = 1.005
_TRIAD_BATCH = 5
_TRIAD_SEC = 2e-3
_WORKING_SETS = (1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 29)
"""Bytes of the triad's three arrays together; the last working set is for memory, the others are for caches."""
_SHARE_OF_MEMORY = 8
_ONE_NUMBER = 3 * ITEMSIZE["float32"]

_built: dict[str, Any] | None = None


def loops(params: dict[str, Any]) -> dict[str, Any]:
    """Check the assembly of the multiply-add kernels."""
    return _fma_kernels(params)[1]


def build(params: dict[str, Any]) -> dict[str, Any]:
    """Build all kernels."""
    global _built
    target = Target.from_json(params["target"])
    folder = Path(params["work_dir"])
    kernels, report = _fma_kernels(params)
    thread_counts = _thread_counts(params)
    for threads in thread_counts:
        lanes = report["vector_bytes"] // ITEMSIZE["float32"]
        kernels[f"triad-{threads}"] = build_kernels(triad_module(lanes, threads), target)
    _built = {
        "paths": {name: folder / f"{name}.so" for name in kernels},
        "dtypes": list(report["loops"]),
        "threads": thread_counts,
        "vector_bytes": report["vector_bytes"],
    }
    for name, kernel in kernels.items():
        export(kernel, _built["paths"][name], folder, target)
    give_up_programs()
    return report


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Run and time the kernels.

    Raises:
        DeviceLostError: If the device cannot be reached; ``device-broke-protocol``; as of `DeviceSession.check_after`.
    """
    if _built is None:
        raise InvariantError("the kernels were not built")
    if params["address"] is None:
        session = local_session()
    else:
        session = open_session(
            params["address"],
            timeout_sec=params["timeout_sec"],
            connect_timeout_sec=params["connect_timeout_sec"],
        )
    try:
        flops = {
            dtype: {str(threads): _flops_per_sec(session, dtype, threads) for threads in _built["threads"]}
            for dtype in _built["dtypes"]
        }
        most_bytes = int(params["memory_bytes"]) // _SHARE_OF_MEMORY
        return {"flops_per_sec": flops, "bandwidth": _bandwidth(session, most_bytes)}
    except Exception as error:
        session.check_after(error)
        raise
    finally:
        session.close()


def _fma_kernels(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the kernels by name, and the answer of `loops`."""
    target = Target.from_json(params["target"])
    width = vector_bytes(target)
    kernels: dict[str, Any] = {}
    assembly: dict[str, list[str]] = {}
    missing: dict[str, str] = {}
    for dtype in params["dtypes"]:
        lanes = width // ITEMSIZE[dtype]
        built = {n: build_kernels(fma_module(dtype, lanes, n), target) for n in _thread_counts(params)}
        try:
            assembly[dtype] = [fma_loop(assembly_of(kernel)) for kernel in built.values()].pop()
        except InvariantError as error:
            missing[dtype] = error.message
        else:
            kernels |= {f"{dtype}-{threads}": kernel for threads, kernel in built.items()}
    return kernels, {"loops": assembly, "missing": missing, "vector_bytes": width}


def _thread_counts(params: dict[str, Any]) -> list[int]:
    return sorted({1, int(params["threads"])})


def _flops_per_sec(session: DeviceSession, dtype: str, threads: int) -> list[float]:
    assert _built is not None
    lanes = _built["vector_bytes"] // ITEMSIZE[dtype]
    size = lanes * CHAINS
    device = session.device("cpu")
    # The steps add up to 1: exact in the element type, without denormals or infinities on the way.
    starts = np.arange(threads * size).reshape(threads, size) % 8
    factors = np.full(lanes, 2.0**-9)
    arrays = (starts, factors, 1.0 / STEPS / factors, np.zeros_like(starts))
    args = [tvm.runtime.tensor(array.astype(dtype), device) for array in arrays]
    module = session.load(_built["paths"][f"{dtype}-{threads}"])
    evaluator = module.time_evaluator("main", device, number=1, repeat=_BATCH)
    times = _samples(lambda: [float(sample) for sample in evaluator(*args).results])
    if not np.array_equal(args[-1].numpy(), starts + 1):
        raise RuntimeError("its fused multiply-adds give a wrong answer")
    return [2.0 * threads * size * STEPS / sec for sec in times]


def _bandwidth(session: DeviceSession, most_bytes: int) -> list[dict[str, Any]]:
    """Return ``{"working_set_bytes", "bytes_per_sec"}`` of each working set that is not too large for the device."""
    assert _built is not None
    step = triad_step(_built["vector_bytes"] // ITEMSIZE["float32"])
    sets = [size for size in _WORKING_SETS if size <= most_bytes]
    if not sets:
        return []
    device = session.device("cpu")
    modules = {threads: session.load(_built["paths"][f"triad-{threads}"]) for threads in _built["threads"]}
    arrays = [tvm.runtime.empty((sets[-1] // _ONE_NUMBER,), "float32", device) for _ in range(3)]
    modules[_built["threads"][-1]]["fill"](*arrays[1:])
    rows = []
    rates = dict.fromkeys(modules, 1e10)
    for working_set in sets:
        if working_set // _ONE_NUMBER // max(modules) < step:
            continue  # some of the threads would have no work
        for threads, module in modules.items():
            size = working_set // _ONE_NUMBER // threads // step * step
            moved = threads * size * _ONE_NUMBER
            turns = max(1, round(_TRIAD_SEC * rates[threads] / moved))
            rates[threads] = moved * turns / _triad_sec(module, device, arrays, size, turns)
            wrong = tvm.runtime.empty((threads,), "int64", device)
            module["wrong"](arrays[0], size, turns, wrong)
            if np.count_nonzero(wrong.numpy()):
                raise RuntimeError("its triad gives a wrong answer")
        rows.append(
            {"working_set_bytes": working_set, "bytes_per_sec": {str(n): r for n, r in rates.items()}}
        )
    return rows


def _triad_sec(module: Any, device: Any, arrays: list[Any], size: int, turns: int) -> float:
    evaluator = module.time_evaluator("triad", device, number=1, repeat=_TRIAD_BATCH)
    return min(_samples(lambda: [float(sample) for sample in evaluator(*arrays, size, turns).results]))


def _samples(batch: Callable[[], list[float]]) -> list[float]:
    """Take samples in batches until two batches in a row have no faster sample, or the time is over."""
    began = time.monotonic()
    samples: list[float] = []
    idle = 0
    while idle < 2 and (not samples or time.monotonic() - began < _MOST_SEC):
        more = batch()
        if not min(more) > 0:
            raise RuntimeError(f"its timer says {min(more)} s")
        idle = idle + 1 if samples and min(more) * _GAIN > min(samples) else 0
        samples += more
    return samples


HANDLERS: Handlers = {"loops": loops, "build": build, "run": run}
