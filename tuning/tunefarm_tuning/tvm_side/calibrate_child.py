"""Child process of `calibration`: builds the calibration kernel, runs it on a device, checks its answer, times it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.tirx import build as build_module

from tunefarm_tuning.errors import InvariantError
from tunefarm_tuning.target import Target
from tunefarm_tuning.tvm_side.linker import link
from tunefarm_tuning.tvm_side.pipeline import tvm_target
from tunefarm_tuning.tvm_side.session import DeviceSession, open_session

SIZE = {"cpu": 320, "cuda": 1024}
"""About a millisecond: long for a timer, short beside a slice of a scheduler's time."""

_REPEAT = 30
_TILE = 16

_library: Path | None = None


def build(params: dict[str, Any]) -> None:
    """Build the kernel: ``{"target", "work_dir"}``."""
    global _library
    target = Target.from_json(params["target"])
    path = Path(params["work_dir"]) / "calibrate.so"
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        library = build_module(kernel(target), target=tvm_target(target))

    def compile_(output: str, objects: list[str], **_: Any) -> None:
        link(objects, output, target)

    library.export_library(str(path), fcompile=compile_, workspace_dir=params["work_dir"])
    _library = path


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Run it: ``{"address", "kind", "timeout_sec", "connect_timeout_sec"}``.

    Returns ``{"time_sec", "wrong"}``.
    """
    if _library is None:
        raise InvariantError("the calibration kernel was not built")
    session = open_session(
        params["address"],
        timeout_sec=params["timeout_sec"],
        connect_timeout_sec=params["connect_timeout_sec"],
    )
    try:
        return _run(session, _library, params["kind"])
    finally:
        session.close()


def kernel(target: Target) -> tvm.IRModule:
    """Return the product of two square matrices, scheduled plainly: on one core, or a thread per number."""
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


def _run(session: DeviceSession, library: Path, kind: str) -> dict[str, Any]:
    device = session.device(kind)
    left, right = operands(SIZE[kind])
    arrays = [_on(device, array) for array in (left, right, np.zeros_like(left))]
    evaluator = session.load(library).time_evaluator("main", device, number=1, repeat=_REPEAT)
    times = [float(one) for one in evaluator(*arrays).results]
    # Whole numbers of this size are exact in float32, in whatever order they are summed up.
    if not min(times) > 0:
        raise RuntimeError(f"its timer says {min(times)} s")
    difference = np.count_nonzero(arrays[2].numpy() != left @ right)
    return {
        "time_sec": min(times),
        "wrong": f"{difference} of {left.size} numbers" if difference else None,
    }


def _on(device: Any, array: np.ndarray[Any, Any]) -> Any:
    tensor = tvm.runtime.empty(array.shape, "float32", device)
    tensor.copyfrom(array)
    return tensor


def operands(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return two matrices of whole numbers between -6 and 6."""
    rows, columns = np.indices((size, size))
    left = (rows * 7 + columns * 3) % 13 - 6
    right = (rows * 5 + columns * 11) % 13 - 6
    return left.astype(np.float32), right.astype(np.float32)


HANDLERS = {one.__name__: one for one in (build, run)}
