"""The shapes of what operators compute, as the interpreter finds them when it allocates tensors.

A file says a shape for every tensor. Where it leaves dimensions open, these are only marks of a place: the sizes follow
from those of the inputs, by the rules here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tunefarm_convert.tflite.converter import OperatorContext
from tunefarm_convert.tflite.operators.blocks import to_batches_shape, to_space_shape
from tunefarm_convert.tflite.operators.reductions import reduced_window_shape
from tunefarm_convert.tflite.operators.slicing import cuts_of_slice, cuts_of_strided_slice, paddings
from tunefarm_convert.tflite.operators.volumes import volume_shape

Shape = tuple[int, ...]
Rule = Callable[[OperatorContext], list[Shape]]

_SAME_PADDING = 0
_LARGEST_RANGE = 1 << 24


def set_output_shapes(op: OperatorContext) -> None:
    """Give the outputs of an operator the shapes that it computes; without a rule, those of the file stay.

    Raises:
        InvalidModelError: invalid-tflite, unsupported-operator.
    """
    rule = RULES.get(op.operator.kind)
    if rule is None:
        return
    for index, shape in zip(op.operator.outputs, rule(op), strict=True):
        op.values.set_shape(index, tuple(int(size) for size in shape))


def _as_input(op: OperatorContext) -> list[Shape]:
    return [op.shape(0)]


def _broadcast(op: OperatorContext) -> list[Shape]:
    return [np.broadcast_shapes(*(op.shape(i) for i in range(len(op.operator.inputs))))]


def _select(op: OperatorContext) -> list[Shape]:
    if op.operator.kind == "SELECT":
        return [op.shape(1)]
    return _broadcast(op)


def _reduced(op: OperatorContext) -> list[Shape]:
    shape = op.shape(0)
    axes = {op.axis(a, len(shape)) for a in op.ints(1, "the list of dimensions")}
    if op.option("KeepDims", False):
        return [tuple(1 if i in axes else size for i, size in enumerate(shape))]
    return [tuple(size for i, size in enumerate(shape) if i not in axes)]


def _arg(op: OperatorContext) -> list[Shape]:
    shape = op.shape(0)
    (axis,) = (op.axis(a, len(shape)) for a in op.ints(1, "the dimension"))
    return [shape[:axis] + shape[axis + 1 :]]


def _windows(op: OperatorContext, kernel: list[int], dilations: list[int], channels: int) -> list[Shape]:
    image = op.need_rank(0, 4)
    sizes = []
    for axis, option in enumerate(("StrideH", "StrideW")):
        size, stride = image[1 + axis], int(op.option(option, 0))
        if stride < 1:
            raise op.bad_file(f"its stride is {stride}, which must be above zero")
        if op.option("Padding") != _SAME_PADDING:
            size -= (kernel[axis] - 1) * dilations[axis]
        if size < 1:
            raise op.bad_file(f"a window of {kernel} is larger than an image of {list(image)}")
        sizes.append(-(-size // stride))
    return [(image[0], *sizes, channels)]


def _convolution(op: OperatorContext) -> list[Shape]:
    weights = op.need_rank(1, 4)
    dilations = [int(op.option(name, 1)) for name in ("DilationHFactor", "DilationWFactor")]
    channels = weights[3] if op.operator.kind == "DEPTHWISE_CONV_2D" else weights[0]
    return _windows(op, [weights[1], weights[2]], dilations, channels)


def _pool(op: OperatorContext) -> list[Shape]:
    kernel = [int(op.option(name, 0)) for name in ("FilterHeight", "FilterWidth")]
    return _windows(op, kernel, [1, 1], op.need_rank(0, 4)[3])


def _fully_connected(op: OperatorContext) -> list[Shape]:
    shape, (units, depth) = op.shape(0), op.need_rank(1, 2)
    if op.option("KeepNumDims", False):
        return [(*shape[:-1], units)]
    if depth < 1 or math.prod(shape) % depth:
        raise op.bad_file(f"weights for {depth} elements do not take {list(shape)}")
    return [(math.prod(shape) // depth, units)]


def _batch_matmul(op: OperatorContext) -> list[Shape]:
    a, b = op.shape(0), op.shape(1)
    if min(len(a), len(b)) < 2:
        raise op.bad_file(f"{list(a)} and {list(b)} are not matrices")
    rows, columns = a[-1 if op.option("AdjX", False) else -2], b[-2 if op.option("AdjY", False) else -1]
    return [(*np.broadcast_shapes(a[:-2], b[:-2]), rows, columns)]


def _reshaped(op: OperatorContext) -> list[Shape]:
    if op.has(1):
        wanted = op.ints(1, "the new shape")
    else:
        wanted = [int(size) for size in op.option("NewShape", ())]
        wanted = [] if wanted == [0] else wanted  # an old form of a scalar
    count = math.prod(op.shape(0))
    if wanted.count(-1) == 1:
        others = math.prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = count // others if others > 0 else 0
    if min(wanted, default=0) < 0 or math.prod(wanted) != count:
        raise op.bad_file(
            f"{list(op.shape(0))} has another number of elements than {wanted}; a size that the file fixes "
            "may not fit the shapes of the inputs"
        )
    return [tuple(wanted)]


def _squeezed(op: OperatorContext) -> list[Shape]:
    shape = op.shape(0)
    axes = {op.axis(int(a), len(shape)) for a in op.option("SqueezeDims", ())}
    axes = axes or {i for i, size in enumerate(shape) if size == 1}
    return [tuple(size for i, size in enumerate(shape) if i not in axes)]


def _expanded(op: OperatorContext) -> list[Shape]:
    shape = list(op.shape(0))
    (axis,) = op.ints(1, "the new dimension")
    shape.insert(op.axis(axis, len(shape) + 1), 1)
    return [tuple(shape)]


def _transposed(op: OperatorContext) -> list[Shape]:
    shape = op.shape(0)
    return [tuple(shape[op.axis(a, len(shape))] for a in op.ints(1, "the order of the dimensions"))]


def _concatenated(op: OperatorContext) -> list[Shape]:
    shapes = [op.shape(i) for i in range(len(op.operator.inputs))]
    axis = op.axis(int(op.option("Axis")), len(shapes[0]))
    result = list(shapes[0])
    result[axis] = sum(shape[axis] for shape in shapes)
    return [tuple(result)]


def _split(op: OperatorContext) -> list[Shape]:
    source, at = (1, 0) if op.operator.kind == "SPLIT" else (0, 2)
    shape, count = op.shape(source), len(op.operator.outputs)
    axis = op.axis(op.ints(at, "the dimension")[0], len(shape))
    sizes = [shape[axis] // max(count, 1)] * count
    if op.operator.kind == "SPLIT_V":
        sizes = op.ints(1, "the list of sizes")
        if sizes.count(-1) == 1:
            sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def _packed(op: OperatorContext) -> list[Shape]:
    shape = list(op.shape(0))
    shape.insert(op.axis(int(op.option("Axis")), len(shape) + 1), len(op.operator.inputs))
    return [tuple(shape)]


def _unpacked(op: OperatorContext) -> list[Shape]:
    shape = op.shape(0)
    axis = op.axis(int(op.option("Axis")), len(shape))
    return [shape[:axis] + shape[axis + 1 :]] * len(op.operator.outputs)


def _tiled(op: OperatorContext) -> list[Shape]:
    times = op.ints(1, "the number of repetitions")
    return [tuple(size * n for size, n in zip(op.shape(0), times, strict=True))]


def _filled(op: OperatorContext) -> list[Shape]:
    return [tuple(op.ints(0 if op.operator.kind == "FILL" else 1, "the new shape"))]


def _gathered(op: OperatorContext) -> list[Shape]:
    embedding = op.operator.kind == "EMBEDDING_LOOKUP"
    table, indices = (op.shape(1), op.shape(0)) if embedding else (op.shape(0), op.shape(1))
    axis = 0 if embedding else op.axis(int(op.option("Axis")), len(table))
    return [(*table[:axis], *indices[int(op.option("BatchDims")) :], *table[axis + 1 :])]


def _gathered_by_positions(op: OperatorContext) -> list[Shape]:
    table, indices = op.shape(0), op.shape(1)
    return [(*indices[:-1], *table[indices[-1] :])]


def _blocks(op: OperatorContext) -> list[Shape]:
    batch, height, width, channels = op.need_rank(0, 4)
    size = int(op.option("BlockSize"))
    if size < 1:
        raise op.bad_file(f"blocks of {size}")
    if op.operator.kind == "SPACE_TO_DEPTH":
        return [(batch, height // size, width // size, channels * size * size)]
    return [(batch, height * size, width * size, channels // (size * size))]


def _range(op: OperatorContext) -> list[Shape]:
    start, limit, delta = (op.constant(i, "an end of the range").reshape(()).item() for i in range(3))
    if delta == 0 or abs((limit - start) / delta) > _LARGEST_RANGE:
        raise op.bad_file(f"a range from {start} to {limit} by {delta}")
    return [(max(0, math.ceil((limit - start) / delta)),)]


def _one_hot(op: OperatorContext) -> list[Shape]:
    shape, (depth,) = list(op.shape(0)), op.ints(1, "the depth")
    shape.insert(op.axis(int(op.option("Axis", -1)), len(shape) + 1), depth)
    return [tuple(shape)]


def _padded(op: OperatorContext) -> list[Shape]:
    pads = zip(op.shape(0), paddings(op), strict=True)
    return [tuple(before + size + after for size, (before, after) in pads)]


def _resized(op: OperatorContext) -> list[Shape]:
    batch, _, _, channels = op.need_rank(0, 4)
    height, width = op.ints(1, "the new size")
    return [(batch, height, width, channels)]


def _real_transform(op: OperatorContext) -> list[Shape]:
    height, width = op.ints(1, "the length of the transform")
    return [(*op.shape(0)[:-2], height, width // 2 + 1)] * 2


def _top_k(op: OperatorContext) -> list[Shape]:
    (count,) = op.ints(1, "the requested number")
    return [(*op.shape(0)[:-1], count)] * 2


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "ABS", "NEG", "EXP", "LOG", "SIN", "COS", "SQRT", "RSQRT", "SQUARE", "FLOOR", "CEIL", "ROUND", "SIGN",
            "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "TANH", "LOGISTIC", "HARD_SWISH", "ELU", "LEAKY_RELU",
            "GELU", "LOGICAL_NOT", "CAST", "DEQUANTIZE", "QUANTIZE", "ZEROS_LIKE", "REVERSE_V2", "CUMSUM", "SOFTMAX",
            "LOG_SOFTMAX", "L2_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION", "DENSIFY", "COMPLEX_ABS",
            "BUCKETIZE", "DYNAMIC_UPDATE_SLICE", "FAKE_QUANT", "REVERSE_SEQUENCE",
        ),
        _as_input,
    ),
    **dict.fromkeys(
        (
            "ADD", "SUB", "MUL", "DIV", "POW", "MAXIMUM", "MINIMUM", "ADD_N", "FLOOR_DIV", "FLOOR_MOD",
            "SQUARED_DIFFERENCE", "PRELU", "ATAN2", "BITWISE_XOR", "EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL",
            "LOGICAL_AND", "LOGICAL_OR",
        ),
        _broadcast,
    ),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"), _reduced
    ),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), _pool),
    "ARG_MAX": _arg,
    "ARG_MIN": _arg,
    "BATCH_MATMUL": _batch_matmul,
    "BATCH_TO_SPACE_ND": lambda op: [to_space_shape(op)],
    "BROADCAST_ARGS": lambda op: [(max(*op.shape(0), *op.shape(1)),)],
    "BROADCAST_TO": _filled,
    "CONCATENATION": _concatenated,
    "CONV_2D": _convolution,
    "CONV_3D": lambda op: [volume_shape(op)],
    "CONV_3D_TRANSPOSE": lambda op: [tuple(op.ints(0, "the shape of the result"))],
    "DEPTHWISE_CONV_2D": _convolution,
    "DEPTH_TO_SPACE": _blocks,
    "EMBEDDING_LOOKUP": _gathered,
    "EXPAND_DIMS": _expanded,
    "FILL": _filled,
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gathered,
    "GATHER_ND": _gathered_by_positions,
    "MIRROR_PAD": _padded,
    "ONE_HOT": _one_hot,
    "PACK": _packed,
    "PAD": _padded,
    "PADV2": _padded,
    "RANGE": _range,
    "RANK": lambda _: [()],
    "REDUCE_WINDOW": lambda op: [reduced_window_shape(op)],
    "RESHAPE": _reshaped,
    "RFFT2D": _real_transform,
    "RESIZE_BILINEAR": _resized,
    "RESIZE_NEAREST_NEIGHBOR": _resized,
    "SELECT": _select,
    "SELECT_V2": _select,
    "SHAPE": lambda op: [(len(op.shape(0)),)],
    "SLICE": lambda op: [tuple(cut.count for cut in cuts_of_slice(op))],
    "SPACE_TO_BATCH_ND": lambda op: [to_batches_shape(op)],
    "SPACE_TO_DEPTH": _blocks,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "SQUEEZE": _squeezed,
    "STRIDED_SLICE": lambda op: [tuple(cuts_of_strided_slice(op)[1])],
    "TILE": _tiled,
    "TOPK_V2": _top_k,
    "TRANSPOSE": _transposed,
    "TRANSPOSE_CONV": lambda op: [tuple(op.ints(0, "the shape of the result"))],
    "UNPACK": _unpacked,
}  # fmt: skip
"""The rules, by the kind of operator."""
