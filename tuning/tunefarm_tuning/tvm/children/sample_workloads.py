"""Child process of `testing.workloads`: small workloads built by hand, without a network around them.

Handlers; each answer is a workload (`Workload.to_json`):

- `matmul`: ``n``, ``dtype`` ("float32"), ``wide`` (false): two square matrices; `wide` sums in float32 and rounds.
- `conv2d`: ``size``, ``channels``, ``dtype``, ``wide``: a 3x3 convolution with bias and ReLU, `channels` in and out.
- `softmax`: ``n``: over the last of two dimensions of `n`.
- `gather`: ``n``: rows picked by index, a kernel that reads wherever its indices say.
- `relu`: ``n``: on a CPU it has no knobs.
- `hostile`: ``n``: `relu` with names from a stranger.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te, topi

from tunefarm_tuning.process import Handlers
from tunefarm_tuning.tvm.base.serialization import module_to_text
from tunefarm_tuning.tvm.tasks.extract import kernel_args, kernel_flops
from tunefarm_tuning.tvm.tasks.workload_key import workload_key
from tunefarm_tuning.workload.task import Workload

_WIDE = "float32"


def matmul(params: dict[str, Any]) -> Any:
    """Return a matrix product."""
    n, dtype = params["n"], params.get("dtype", "float32")
    left = te.placeholder((n, n), dtype, name="left")
    right = te.placeholder((n, n), dtype, name="right")
    if params.get("wide"):
        return _workload(
            "matmul", [left, right, topi.cast(topi.nn.matmul(left, right, out_dtype=_WIDE), dtype)]
        )
    return _workload("matmul", [left, right, topi.matmul(left, right)])


def conv2d(params: dict[str, Any]) -> Any:
    """Return a 3x3 convolution with bias and ReLU."""
    size, channels, dtype = params["size"], params["channels"], params.get("dtype", "float32")
    data = te.placeholder((1, size, size, channels), dtype, name="data")
    weight = te.placeholder((3, 3, channels, channels), dtype, name="weight")
    bias = te.placeholder((1, 1, 1, channels), dtype, name="bias")
    conv = topi.nn.conv2d_nhwc(data, weight, 1, 1, 1, out_dtype=_WIDE if params.get("wide") else dtype)
    out = topi.nn.relu(topi.add(topi.cast(conv, dtype), bias))
    return _workload("conv2d", [data, weight, bias, out])


def softmax(params: dict[str, Any]) -> Any:
    """Return a softmax."""
    data = te.placeholder((params["n"], params["n"]), "float32", name="data")
    return _workload("softmax", [data, topi.nn.softmax(data)])


def gather(params: dict[str, Any]) -> Any:
    """Return a gather of rows."""
    n = params["n"]
    table = te.placeholder((n, 16), "float32", name="table")
    rows = te.placeholder((n,), "int64", name="rows")
    return _workload("gather", [table, rows, topi.take(table, rows, axis=0, mode="fast")])


def relu(params: dict[str, Any]) -> Any:
    """Return a ReLU of `n` values."""
    data = te.placeholder((params["n"],), "float32", name="data")
    return _workload("relu", [data, topi.nn.relu(data)])


def hostile(params: dict[str, Any]) -> Any:
    """Return a ReLU whose names hold markup, escapes and control characters."""
    data = te.placeholder((params["n"],), "float32", name="\x1b[31m</pre><script>\u202e\n")
    out = te.compute(data.shape, lambda i: te.max(data[i], 0.0), name="'\"\\\x07é" + "x" * 5000)
    return _workload("\x1b]0;title\x07", [data, out])


def _workload(name: str, tensors: list[Any]) -> Any:
    func = te.create_prim_func(tensors).with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    module = tvm.IRModule({"main": func})
    return Workload(
        key=workload_key(func),
        name=name,
        flops=kernel_flops(module),
        args=kernel_args(module),
        ir=module_to_text(module),
    ).to_json()


HANDLERS: Handlers = {
    "matmul": matmul,
    "conv2d": conv2d,
    "softmax": softmax,
    "gather": gather,
    "relu": relu,
    "hostile": hostile,
}
