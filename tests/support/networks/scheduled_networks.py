"""Networks of a kernel or two each, whose default schedules are tested, and how to build and run their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnx_reference import unaligned_tensor

from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel
from tunefarm_tuning.tvm.tasks.extract import Kernel, kernel_args, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

HOST = parse_target("host")
PLAIN_X86 = parse_target("llvm -mcpu=x86-64")
AVX2 = parse_target("llvm -mcpu=x86-64-v3")
AVX512 = parse_target("llvm -mcpu=x86-64-v4")
ARM = parse_target("raspberry-pi/4b-aarch64")

Shape = Sequence[int]
Net = Callable[[GraphBuilder], str]


def conv(shape: Shape, out: int, kernel: int, stride: int = 1, group: int = 1, *, after: str = "Relu") -> Net:
    def build(g: GraphBuilder) -> str:
        y = g.conv(g.input("x", shape), shape[1], out, kernel, stride, group)
        return str(g.node(after, y)) if after else y

    return build


def single(operator: str, *shapes: Shape, dtype: int = TensorProto.FLOAT, **attributes: Any) -> Net:
    """One operator whose inputs are the model's."""

    def build(g: GraphBuilder) -> str:
        inputs = [g.input(f"x{number}", shape, dtype) for number, shape in enumerate(shapes)]
        return str(g.node(operator, *inputs, **attributes))

    return build


def reduction(operator: str, shape: Shape, axes: Sequence[int], keep: int = 1) -> Net:
    def build(g: GraphBuilder) -> str:
        x = g.input("x", shape)
        if operator == "ReduceSum":
            return str(g.node(operator, x, g.ints(*axes), keepdims=keep))
        return str(g.node(operator, x, axes=list(axes), keepdims=keep))

    return build


def dense(shape: Shape, features: int) -> Net:
    return lambda g: g.linear(g.input("x", shape), shape[-1], features)


def gemm(rows: int, inner: int, columns: int, *, transposed: int) -> Net:
    def build(g: GraphBuilder) -> str:
        shape = (columns, inner) if transposed else (inner, columns)
        return str(g.node("Gemm", g.input("x", (rows, inner)), g.input("w", shape), transB=transposed))

    return build


def normalised(shape: Shape) -> Net:
    def build(g: GraphBuilder) -> str:
        scale = g.constant(np.linspace(0.5, 1.5, shape[-1], dtype=np.float32))
        return str(g.node("LayerNormalization", g.input("x", shape), scale, scale, axis=-1))

    return build


def transposed_conv(g: GraphBuilder) -> str:
    weight = g.weight(8, 5, 3, 3)
    return str(g.node("ConvTranspose", g.input("x", (1, 8, 9, 9)), weight, strides=[2, 2], pads=[1, 1, 1, 1]))


def gelu(g: GraphBuilder) -> str:
    y = g.linear(g.input("x", (5, 24)), 24, 40)
    return str(g.node("Mul", y, g.node("Erf", y)))


def swish_of_a_conv(g: GraphBuilder) -> str:
    y = g.conv(g.input("x", (1, 3, 13, 13)), 3, 24, 3, 2)
    return str(g.node("Mul", y, g.node("Sigmoid", y)))


def squeeze_and_excite(g: GraphBuilder) -> str:
    x = g.input("x", (1, 16, 9, 9))
    return str(g.node("Mul", x, g.node("Sigmoid", g.conv(g.node("GlobalAveragePool", x), 16, 16, 1))))


def two_outputs_of_one(g: GraphBuilder) -> str:
    y = g.conv(g.input("x", (1, 4, 8, 8)), 4, 16, 3)
    return str(g.node("Concat", g.node("Relu", y), g.node("Tanh", y), axis=1))


def looked_up(g: GraphBuilder) -> str:
    table = g.weight(50, 33)
    return str(g.node("Gather", table, g.input("rows", (7,), TensorProto.INT64), axis=0))


def resized(g: GraphBuilder) -> str:
    sizes = g.ints(1, 3, 16, 20)
    return str(g.node("Resize", g.input("x", (1, 3, 8, 10)), "", "", sizes, mode="linear"))


def summed_up(g: GraphBuilder) -> str:
    return str(g.node("CumSum", g.input("x", (6, 33)), g.constant(np.array(1, np.int64))))


def padded(g: GraphBuilder) -> str:
    return str(g.node("Pad", g.input("x", (3, 10, 17)), g.ints(0, 1, 2, 0, 3, 1), mode="reflect"))


def two_halves(g: GraphBuilder) -> str:
    """A kernel of two results, both used as they are."""
    x, y = (g.node("Reshape", g.input(name, (3, 14, 16)), g.ints(3, 7, 2, 16)) for name in ("x", "y"))
    shuffled = g.node("Transpose", g.node("Concat", x, y, axis=2), perm=[0, 1, 3, 2])
    left, right = g.node("Split", g.node("Reshape", shuffled, g.ints(21, 64)), outputs=2, axis=1)
    return str(g.node("MatMul", left, g.node("Transpose", right, perm=[1, 0])))


def joined_twice(g: GraphBuilder) -> str:
    """Two loops with partition points."""
    x, y = g.input("x", (3, 4, 32)), g.input("y", (3, 4, 48))
    row = g.node("Concat", x, y, axis=2)
    return str(g.node("Concat", row, g.input("z", (3, 2, 80)), axis=1))


def joined_and_scaled(g: GraphBuilder) -> str:
    joined = g.node("Concat", g.input("x", (2, 9, 32)), g.input("y", (2, 9, 64)), axis=2)
    scaled = g.node("Add", g.node("Mul", joined, g.weight(96)), g.weight(96))
    return str(g.node("Sigmoid", scaled))


def rotated(g: GraphBuilder) -> str:
    """As rotary embeddings turn pairs of features."""
    x = g.input("x", (2, 9, 64))
    left, right = g.node("Split", x, g.ints(32, 32), outputs=2, axis=2)
    turned = g.node("Concat", g.node("Neg", right), left, axis=2)
    return str(g.node("Add", g.node("Mul", x, g.weight(9, 64)), g.node("Mul", turned, g.weight(9, 64))))


def single_pad(shape: Shape, pads: Sequence[int]) -> Net:
    return lambda g: str(g.node("Pad", g.input("x", shape), g.ints(*pads)))


def top_two(g: GraphBuilder) -> str:
    return str(g.node("TopK", g.input("x", (4, 19)), g.ints(2), outputs=2)[0])


NETS: dict[str, Net] = {
    "conv-3x3": conv((1, 16, 14, 14), 32, 3),
    "conv-3x3-stride": conv((2, 16, 15, 15), 24, 3, 2, after=""),
    "conv-1x1": conv((1, 24, 7, 7), 40, 1),
    "conv-1x1-stride": conv((1, 24, 14, 14), 17, 1, 2),
    "conv-7x7": conv((1, 3, 32, 32), 16, 7, 2),
    "conv-odd-channels": conv((1, 5, 11, 13), 7, 3),
    "conv-many-channels": conv((1, 256, 7, 7), 256, 3),
    "conv-depthwise": conv((1, 48, 17, 17), 48, 3, 1, 48),
    "conv-depthwise-stride": conv((1, 20, 17, 17), 20, 5, 2, 20, after="Tanh"),
    "conv-depthwise-256": conv((1, 256, 8, 16), 256, 5, 1, 256),
    "conv-208-columns": conv((1, 104, 6, 5), 208, 1),
    "conv-groups": conv((1, 16, 9, 9), 32, 3, 1, 4),
    "conv-large-groups": conv((1, 192, 9, 9), 256, 3, 1, 2),
    "conv-groups-of-sixteen": conv((1, 32, 10, 9), 64, 3, 2, 4),
    "conv-groups-of-three": conv((1, 8, 7, 7), 12, 3, 1, 4),
    "conv-groups-of-four": conv((1, 64, 9, 9), 64, 3, 1, 16),
    "conv-groups-of-four-by-two": conv((1, 64, 9, 9), 32, 3, 2, 16),
    "conv-groups-of-two-by-four": conv((1, 32, 9, 9), 64, 3, 2, 16),
    "conv-two-outputs-of-each": conv((1, 32, 9, 9), 64, 3, 1, 32),
    "conv-groups-in-rows": conv((1, 64, 6, 40), 64, 1, 1, 16),
    "conv-1d": single("Conv", (1, 6, 33), (8, 6, 3), kernel_shape=[3]),
    "conv-3d": single("Conv", (1, 2, 6, 6, 6), (4, 2, 3, 3, 3), kernel_shape=[3, 3, 3]),
    "conv-transposed": transposed_conv,
    "conv-residual-swish": swish_of_a_conv,
    "conv-used-twice": two_outputs_of_one,
    "squeeze-excite": squeeze_and_excite,
    "dense-1": dense((1, 96), 1001),
    "dense-odd": dense((17, 33), 19),
    "dense-50": dense((1, 29, 24), 50),
    "dense-large": dense((1, 64, 320), 512),
    "dense-gelu": gelu,
    "gemm-transposed": gemm(12, 64, 30, transposed=1),
    "gemm-transposed-odd": gemm(5, 197, 7, transposed=1),
    "batch-matmul": single("MatMul", (2, 3, 17, 16), (2, 3, 16, 24)),
    "batch-matmul-49": single("MatMul", (6, 49, 16), (6, 16, 49)),
    "batch-matmul-197": single("MatMul", (2, 19, 8), (2, 8, 197)),
    "matmul-double": single("MatMul", (9, 20), (20, 18), dtype=TensorProto.DOUBLE),
    "matmul-int32": single("MatMul", (9, 20), (20, 18), dtype=TensorProto.INT32),
    "matvec": single("MatMul", (33, 64), (64,)),
    "pool-max": single("MaxPool", (1, 12, 15, 15), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "pool-average": single("AveragePool", (1, 12, 15, 15), kernel_shape=[3, 3], strides=[2, 2]),
    "pool-global": single("GlobalAveragePool", (2, 20, 7, 7)),
    "softmax": single("Softmax", (3, 5, 64), axis=-1),
    "softmax-197": single("Softmax", (4, 197), axis=-1),
    "softmax-middle": single("Softmax", (2, 21, 18), axis=1),
    "log-softmax": single("LogSoftmax", (4, 1000), axis=-1),
    "layer-norm": normalised((2, 9, 96)),
    "layer-norm-odd": normalised((3, 33)),
    "instance-norm": lambda g: str(
        g.node("InstanceNormalization", g.input("x", (2, 6, 9, 9)), g.weight(6), g.weight(6))
    ),
    "sum-first": reduction("ReduceSum", (19, 40), (0,)),
    "sum-middle": reduction("ReduceSum", (3, 19, 40), (1,), 0),
    "sum-last": reduction("ReduceSum", (19, 48), (1,)),
    "sum-last-odd": reduction("ReduceSum", (19, 49), (1,)),
    "sum-all": reduction("ReduceSum", (8, 64), (0, 1), 0),
    "sum-last-odd-half": single("Softmax", (9, 77), dtype=TensorProto.FLOAT16, axis=-1),
    "max-last-odd": reduction("ReduceMax", (2, 7, 129), (2,)),
    "max-last-int8": single("ReduceMax", (5, 131), dtype=TensorProto.INT8, axes=[1]),
    "min-last-int64": single("ReduceMin", (5, 35), dtype=TensorProto.INT64, axes=[1]),
    "mean-last-odd": reduction("ReduceMean", (600, 197), (1,)),
    "product-odd": reduction("ReduceProd", (4, 33), (1,)),
    "max-last": reduction("ReduceMax", (7, 128), (1,)),
    "mean-two": reduction("ReduceMean", (3, 6, 8, 10), (1, 3)),
    "product": reduction("ReduceProd", (4, 32), (1,)),
    "argmax": single("ArgMax", (6, 70), axis=1),
    "transpose": single("Transpose", (3, 40, 50), perm=[0, 2, 1]),
    "transpose-4d": single("Transpose", (2, 5, 7, 16), perm=[0, 2, 3, 1]),
    "transpose-int64": single("Transpose", (12, 18), dtype=TensorProto.INT64, perm=[1, 0]),
    "concat": single("Concat", (3, 10), (3, 17), (3, 6), axis=1),
    "split-shuffled": two_halves,
    "concat-aligned": single("Concat", (3, 32), (3, 64), axis=1),
    "concat-many": single("Concat", *[(3, 5, 16 * (number % 3 + 1)) for number in range(30)], axis=2),
    "concat-of-long-ones": single("Concat", (1, 6, 6, 33), (1, 6, 6, 3), (1, 6, 6, 58), axis=3),
    "concat-in-front": single("Concat", (1, 1, 48), (1, 19, 48), axis=1),
    "concat-in-front-odd": single("Concat", (1, 3, 11, 11), (1, 5, 11, 11), axis=1),
    "concat-in-front-short": single("Concat", (1, 512, 3, 3), (1, 512, 3, 3), axis=1),
    "concat-of-hundred": single("Concat", *[(3, 8)] * 100, axis=1),
    "concat-int64": single("Concat", (4, 40), (4, 25), (4, 1), dtype=TensorProto.INT64, axis=1),
    "concat-int64-in-front": single("Concat", (4, 13), (3, 13), dtype=TensorProto.INT64, axis=0),
    "concat-int8": single("Concat", (4, 64), (4, 128), (4, 16), dtype=TensorProto.INT8, axis=1),
    "concat-half": single("Concat", (4, 40), (4, 24), dtype=TensorProto.FLOAT16, axis=1),
    "concat-by-threads": single("Concat", (40, 30, 32), (40, 30, 16), axis=2),
    "concat-of-concats": joined_twice,
    "concat-then-scaled": joined_and_scaled,
    "rotated-halves": rotated,
    "pad-last": single_pad((3, 70), (0, 3, 0, 5)),
    "gather": looked_up,
    "top-k": top_two,
    "resize": resized,
    "cumsum": summed_up,
    "pad": padded,
    "slice": lambda g: str(
        g.node("Slice", g.input("x", (9, 40)), g.ints(1, 3), g.ints(8, 39), g.ints(0, 1), g.ints(1, 2))
    ),
    "add-broadcast": single("Add", (4, 1, 33), (7, 33)),
    "add-large": single("Add", (64, 1024), (64, 1024)),
    "add-scalar": single("Mul", (5, 37), ()),
    "and": single("And", (3, 37), (3, 37), dtype=TensorProto.BOOL),
    "greater": single("Greater", (5, 33), (5, 33)),
    "cast-int8": lambda g: str(g.node("Cast", g.input("x", (5, 33)), to=TensorProto.INT8)),
    "where": lambda g: str(
        g.node("Where", g.input("c", (5, 33), TensorProto.BOOL), g.input("x", (5, 33)), g.input("y", (33,)))
    ),
    "power": single("Pow", (3, 40), (3, 40)),
    "one-element": single("Add", (1,), (1,)),
}

# Results of a group that fill no whole number of vectors, or read many inputs.
TAILS_OF_GROUPS = {
    f"conv-groups-{channels}-{results}-{groups}": conv((1, channels, 9, 17), results, kernel, 1, groups)
    for channels, results, groups, kernel in [
        (16, 48, 4, 1),
        (64, 96, 16, 3),
        (24, 18, 3, 3),
        (8, 12, 2, 3),
        (24, 24, 4, 3),
        (34, 34, 2, 3),
        (192, 64, 16, 3),
        (256, 32, 16, 3),
    ]
}
NETS |= TAILS_OF_GROUPS

ON_OLDER_CPUS = TAILS_OF_GROUPS.keys() | {
    "conv-3x3",
    "conv-odd-channels",
    "conv-depthwise-stride",
    "dense-odd",
    "batch-matmul-197",
    "softmax",
    "softmax-197",
}
ON_OLDER_CPUS |= {"layer-norm-odd", "add-broadcast", "dense-50"}


def kernels_of(net: Net, folder: Path, target: Target) -> list[Kernel]:
    g = GraphBuilder(1)
    g.output(net(g), None)
    path = folder / "model.onnx"
    path.write_bytes(onnx.shape_inference.infer_shapes(g.model()).SerializeToString())
    workloads = primfunc_workloads(load_relax(path, Binding(), target).module)
    return [kernel for kernel in workloads if kernel.not_tunable is None]


def run(kernel: Kernel, folder: Path, target: Target, *, default_schedules: bool) -> list[NDArray[Any]]:
    path = (
        folder / f"{kernel.name}-{'default' if default_schedules else 'unscheduled'}-{target.get('mcpu')}.so"
    )
    build_kernel(PackedKernel(func=kernel.module["main"]), target, path, default_schedules=default_schedules)
    arrays = random_inputs(kernel_args(kernel.module), seed=3, kind=InputKind.POSITIVE)
    args = [unaligned_tensor(array) for array in arrays]
    tvm.runtime.load_module(str(path))["main"](*args)
    return [arg.numpy() for arg in args]
