"""Child process of `measure.calibration`: builds its kernel, runs it on a device, checks its result, times it, tries instructions.

Handlers, in this order:

- `build`: ``target``, ``work_dir`` -> on how many cores the kernel can run at once.
- `first_call`: ``address``, ``kind``, ``timeout_sec``, ``connect_timeout_sec`` -> the seconds of the first call on the device.
- `run`: ``cores``, ``first_call_sec`` -> ``time_sec``; ``all_cores_sec``: null for one core or a GPU; ``wrong``: null, or how much
  of the result is wrong; ``clock_mhz``: null unless a GPU tells it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.tirx import build as build_module

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.measure.gpu.state import GpuState, busy
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.process.sandbox import give_up_programs
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.device_code import export
from tunefarm_tuning.tvm.device.gpu import state_of
from tunefarm_tuning.tvm.device.instruction_probes import InstructionProbe, instruction_probes
from tunefarm_tuning.tvm.device.session import DeviceSession, open_session

SIZE = {"cpu": 320, "cuda": 1024}
"""Rows and columns: about a millisecond of work, long for a timer and short compared to a scheduler's time slice."""

_REPEAT = (3, 30)
_ONE_CORE_SEC = 10.0
"""A board that needs longer for all its calls makes fewer."""
_TILE = 16
_ALL_CORES_SEC = 0.3
"""How long all cores are kept busy, so that their clocks fall to the level under full load."""
_ALL_CORES_REPEAT = (5, 300)
_SLOW_SEC = 0.5
"""From this time of a call on, all cores are kept busy by one call."""
_MOST_CORES = 256


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The kernel on the device, with its arguments and what reads the state of a GPU."""

    session: DeviceSession
    kind: str
    device: Any
    module: Any
    arrays: list[Any]
    read_state: Callable[[], GpuState] | None
    probes: Sequence[InstructionProbe] = ()


class _ProbeStoppedError(Exception):
    """A call of a probe that did not come back; the text goes into the device's reason."""


_library: Path | None = None
_probes: list[InstructionProbe] = []
_loaded: _Loaded | None = None


def build(params: dict[str, Any]) -> int:
    """Build the kernel; return the number of cores on which it can run at once."""
    global _library, _probes
    target = Target.from_json(params["target"])
    path = Path(params["work_dir"]) / "calibrate.so"
    module = kernel(target)
    if cores(target) > 1:
        module.update(all_cores_kernels(cores(target)))
    _probes = instruction_probes(target)
    module.update(tvm.IRModule({probe.name: probe.func for probe in _probes}))
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        library = build_module(module, target=tvm_target(target))
    _library = path
    export(library, path, path.parent, target)
    give_up_programs()
    return cores(target)


def first_call(params: dict[str, Any]) -> float:
    """Load the kernel on a device over RPC and call it once; return the seconds of the call.

    Raises:
        DeviceLostError: If the device cannot be reached; ``device-busy`` if another process computes on the GPU;
            ``device-broke-protocol``; as of `DeviceSession.check_after`.
    """
    global _loaded
    if _library is None:
        raise InvariantError("the calibration kernel was not built")
    session = open_session(
        params["address"],
        timeout_sec=params["timeout_sec"],
        connect_timeout_sec=params["connect_timeout_sec"],
    )
    try:
        _loaded = _load(session, _library, params["kind"])
        start = time.perf_counter()
        _loaded.module["main"](*_loaded.arrays)
        _loaded.device.sync()
        return time.perf_counter() - start
    except Exception as error:
        session.check_after(error)
        raise


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Time the kernel and check its result.

    Raises:
        DeviceLostError: ``device-busy`` if another process computes on the GPU; ``device-broke-protocol``; as of
            `DeviceSession.check_after`.
    """
    if _loaded is None:
        raise InvariantError("the calibration kernel was not loaded")
    try:
        return _run(_loaded, params["cores"], params["first_call_sec"])
    except Exception as error:
        _loaded.session.check_after(error)
        raise
    finally:
        _loaded.session.close()


def kernel(target: Target) -> tvm.IRModule:
    """Return the product of two square matrices with a simple schedule: on one core, or a GPU thread for each result."""
    size = SIZE["cuda" if target.kind == "cuda" else "cpu"]
    left = te.placeholder((size, size), "float32", name="left")
    right = te.placeholder((size, size), "float32", name="right")
    over = te.reduce_axis((0, size), name="k")
    product = te.compute(
        (size, size), lambda i, j: te.sum(left[i, over] * right[over, j], axis=over), name="product"
    )
    func = te.create_prim_func([left, right, product]).with_attr("global_symbol", "main")
    schedule = Schedule(tvm.IRModule({"main": func}))
    block = schedule.get_sblock("product")
    i, j, k = schedule.get_loops(block)
    if target.kind == "cuda":
        rows, row = schedule.split(i, [None, _TILE])
        columns, column = schedule.split(j, [None, _TILE])
        schedule.reorder(rows, columns, row, column, k)
        for loop, name in (
            (rows, "blockIdx.y"),
            (columns, "blockIdx.x"),
            (row, "threadIdx.y"),
            (column, "threadIdx.x"),
        ):
            schedule.bind(loop, name)
    else:
        outer, inner = schedule.split(j, [None, _TILE])
        schedule.reorder(i, outer, k, inner)
        schedule.vectorize(inner)
    return schedule.mod


def all_cores_kernels(num_cores: int) -> tvm.IRModule:
    """Return ``all_cores``, the same product on each core, and ``deviations``, each core's largest error."""
    size = SIZE["cpu"]
    left = te.placeholder((size, size), "float32", name="left")
    right = te.placeholder((size, size), "float32", name="right")
    over = te.reduce_axis((0, size), name="k")
    products = te.compute(
        (num_cores, size, size),
        lambda _, i, j: te.sum(left[i, over] * right[over, j], axis=over),
        name="product",
    )
    measured = te.placeholder((num_cores, size, size), "float32", name="given")
    wanted = te.placeholder((size, size), "float32", name="wanted")
    row, column = te.reduce_axis((0, size), name="row"), te.reduce_axis((0, size), name="column")
    deviations = te.compute(
        (num_cores,),
        lambda core: te.max(te.abs(measured[core, row, column] - wanted[row, column]), axis=[row, column]),
        name="deviation",
    )
    functions = {
        "all_cores": te.create_prim_func([left, right, products]),
        "deviations": te.create_prim_func([measured, wanted, deviations]),
    }
    module = tvm.IRModule({name: func.with_attr("global_symbol", name) for name, func in functions.items()})
    schedule = Schedule(module)
    schedule.work_on("all_cores")
    core, i, j, k = schedule.get_loops(schedule.get_sblock("product"))
    outer, inner = schedule.split(j, [None, _TILE])
    schedule.reorder(core, i, outer, k, inner)
    schedule.vectorize(inner)
    schedule.parallel(core)
    schedule.work_on("deviations")
    schedule.parallel(schedule.get_loops(schedule.get_sblock("deviation"))[0])
    return schedule.mod


def cores(target: Target) -> int:
    """Return the number of cores of a device's calibration; 1 for GPUs and unknown numbers of cores."""
    named = target.get("num-cores")
    return min(named, _MOST_CORES) if target.kind == "llvm" and isinstance(named, int) else 1


def _load(session: DeviceSession, library: Path, kind: str) -> _Loaded:
    read = state_of(session) if kind == "cuda" else None
    _check_free(read)
    device = session.device(kind)
    left, right = operands(SIZE[kind])
    arrays = [tvm.runtime.tensor(array, device) for array in (left, right, np.zeros_like(left))]
    return _Loaded(session, kind, device, session.load(library), arrays, read, tuple(_probes))


def repeats(first_call_sec: float) -> int:
    """Return how often the kernel is timed on one core, by its first call."""
    fewest, most = _REPEAT
    return max(fewest, min(most, int(_ONE_CORE_SEC / first_call_sec)))


def _run(loaded: _Loaded, num_cores: int, first_call_sec: float) -> dict[str, Any]:
    module, arrays = loaded.module, loaded.arrays
    left, right = operands(SIZE[loaded.kind])
    evaluator = module.time_evaluator("main", loaded.device, number=1, repeat=repeats(first_call_sec))
    times = [float(sample) for sample in evaluator(*arrays).results]
    clock_mhz = _check_free(loaded.read_state)
    # Sums of whole numbers of this size are exact in float32, in any order.
    if (impossible := _impossible(times)) is not None:
        return {"time_sec": 0.0, "all_cores_sec": None, "wrong": impossible, "clock_mhz": clock_mhz}
    difference = np.count_nonzero(arrays[2].numpy() != left @ right)
    wrong = f"{difference} of {left.size} numbers" if difference else _wrong_instruction(loaded)
    all_cores_sec: float | None = None
    if num_cores > 1 and wrong is None:
        all_cores_sec, wrong = _run_all_cores(module, loaded.device, arrays, num_cores)
    return {"time_sec": min(times), "all_cores_sec": all_cores_sec, "wrong": wrong, "clock_mhz": clock_mhz}


def _wrong_instruction(loaded: _Loaded) -> str | None:
    """Return which feature's instruction computes wrongly; None if all are right.

    Raises:
        _ProbeStoppedError: If a call fails: the CPU lacks the instruction, and the session ended with it.
    """
    for probe in loaded.probes:
        operands = probe.left, probe.right, np.zeros_like(probe.expected)
        try:
            arrays = [tvm.runtime.tensor(array, loaded.device) for array in operands]
            loaded.module[probe.name](*arrays)
            result = arrays[2].numpy()
        except Exception as error:
            raise _ProbeStoppedError(
                f"its CPU stopped at an instruction of {probe.feature}, which its target promises. If the CPU has none, join "
                f"with --target and -mattr=-{probe.feature} in it ({error})"
            ) from error
        if not np.array_equal(result, probe.expected):
            return f"an instruction of {probe.feature}"
    return None


def _impossible(times: Sequence[float]) -> str | None:
    """Return what is wrong with times of a kernel; None if they can be."""
    impossible = [sec for sec in times if not 0 < sec < math.inf]
    return f"its timer says {impossible[0]} s" if impossible else None


def _check_free(read: Callable[[], GpuState] | None) -> float | None:
    """Return the clock of a GPU in MHz, None if unknown; raise if another process uses the GPU."""
    if read is None:
        return None
    state = read()
    if state.used_by:
        raise busy(state.used_by)
    return state.clock_mhz


def _run_all_cores(module: Any, device: Any, arrays: list[Any], num_cores: int) -> tuple[float, str | None]:
    """Return the seconds of a product on each core while all cores compute one, and the faults of the results.

    The time is the median, not the minimum: the question is how much the cores slow each other down.
    """
    left, right, wanted = arrays
    size = SIZE["cpu"]
    products = tvm.runtime.empty((num_cores, size, size), "float32", device)

    def median_sec(repeat: int) -> float:
        evaluator = module.time_evaluator("all_cores", device, number=1, repeat=repeat)
        return float(np.median(evaluator(left, right, products).results))

    fewest, most = _ALL_CORES_REPEAT
    time_sec = median_sec(1)
    if time_sec < _SLOW_SEC:
        time_sec = median_sec(fewest)
        if (impossible := _impossible([time_sec])) is not None:
            return 0.0, impossible
        time_sec = median_sec(min(most, max(fewest, round(_ALL_CORES_SEC / time_sec))))
    if (impossible := _impossible([time_sec])) is not None:
        return 0.0, impossible
    deviations = tvm.runtime.empty((num_cores,), "float32", device)
    module["deviations"](products, wanted, deviations)
    wrong = np.count_nonzero(deviations.numpy())
    return time_sec, f"on {wrong} of {num_cores} cores" if wrong else None


def operands(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return two matrices of whole numbers between -6 and 6."""
    rows, columns = np.indices((size, size))
    left = (rows * 7 + columns * 3) % 13 - 6
    right = (rows * 5 + columns * 11) % 13 - 6
    return left.astype(np.float32), right.astype(np.float32)


HANDLERS: Handlers = {"build": build, "first_call": first_call, "run": run}
