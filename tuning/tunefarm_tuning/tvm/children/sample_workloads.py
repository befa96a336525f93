"""Child process of `testing.workloads`: small workloads made by hand, without a network around them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te, topi

from tunefarm_tuning.tvm.base.serialization import module_to_text
from tunefarm_tuning.tvm.tasks.extract import kernel_args, kernel_flops
from tunefarm_tuning.tvm.tasks.workload_key import workload_key
from tunefarm_tuning.workload.task import Workload

_WIDE = "float32"


def matmul(params: dict[str, Any]) -> Any:
    """``n`` times ``n`` of ``dtype``; with ``wide``, summed up in float32 and rounded."""
    n, dtype = params["n"], params.get("dtype", "float32")
    left = te.placeholder((n, n), dtype, name="left")
    right = te.placeholder((n, n), dtype, name="right")
    if params.get("wide"):
        return _workload(
            "matmul", [left, right, topi.cast(topi.nn.matmul(left, right, out_dtype=_WIDE), dtype)]
        )
    return _workload("matmul", [left, right, topi.matmul(left, right)])


def conv2d(params: dict[str, Any]) -> Any:
    """3x3 convolution, bias and ReLU: ``size`` square, ``channels`` in and out, of ``dtype``; ``wide`` as of `matmul`."""
    size, channels, dtype = params["size"], params["channels"], params.get("dtype", "float32")
    data = te.placeholder((1, size, size, channels), dtype, name="data")
    weight = te.placeholder((3, 3, channels, channels), dtype, name="weight")
    bias = te.placeholder((1, 1, 1, channels), dtype, name="bias")
    made = topi.nn.conv2d_nhwc(data, weight, 1, 1, 1, out_dtype=_WIDE if params.get("wide") else dtype)
    out = topi.nn.relu(topi.add(topi.cast(made, dtype), bias))
    return _workload("conv2d", [data, weight, bias, out])


def softmax(params: dict[str, Any]) -> Any:
    """Over the last of two dimensions of ``n``."""
    data = te.placeholder((params["n"], params["n"]), "float32", name="data")
    return _workload("softmax", [data, topi.nn.softmax(data)])


def gather(params: dict[str, Any]) -> Any:
    """``n`` rows picked by index: a kernel that reads wherever its indices say."""
    n = params["n"]
    table = te.placeholder((n, 16), "float32", name="table")
    rows = te.placeholder((n,), "int64", name="rows")
    return _workload("gather", [table, rows, topi.take(table, rows, axis=0, mode="fast")])


def relu(params: dict[str, Any]) -> Any:
    """Of ``n`` values: on a CPU there is nothing to choose."""
    data = te.placeholder((params["n"],), "float32", name="data")
    return _workload("relu", [data, topi.nn.relu(data)])


def hostile(params: dict[str, Any]) -> Any:
    """``relu`` of ``n`` values, with a stranger's names."""
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


HANDLERS = {maker.__name__: maker for maker in (matmul, conv2d, softmax, gather, relu, hostile)}
