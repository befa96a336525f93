"""The custom operators of MediaPipe's networks."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.flexible_options import FlexibleOptions
from tunefarm_convert.tflite.operators.windows import same_pads

_SAME, _VALID = 1, 2
"""Numbers of paddings in custom options; those of the format's own operators are others."""
_LARGEST_WINDOW = 64


def _numbers(op: OperatorContext, count: int) -> tuple[int, ...]:
    """Return the first numbers of options that are a C structure of 32-bit integers."""
    if len(op.operator.custom) < 4 * count:
        raise op.bad_file("its options are cut off")
    return struct.unpack_from(f"<{count}i", op.operator.custom)


def _need_version(op: OperatorContext, *versions: int) -> None:
    if op.operator.version not in versions:
        known = " or ".join(map(str, versions))
        raise op.unsupported_form(f"version {op.operator.version}; tunefarm supports version {known}")


def _padding(op: OperatorContext, number: int) -> bool:
    if number not in (_SAME, _VALID):
        raise op.bad_file(f"padding number {number} is neither SAME nor VALID")
    return number == _SAME


def _transposed_convolution(op: OperatorContext) -> None:
    image, weights = op.need_rank(0, 4), op.need_rank(1, 4)
    padding, *strides_across = _numbers(op, 3)
    strides = strides_across[::-1]
    is_same = _padding(op, padding)
    if min(strides) < 1 or weights[3] != image[3]:
        raise op.bad_file(
            f"weights of shape {list(weights)} and strides {strides} for an image of {list(image)}"
        )
    kernel = [weights[1], weights[2]]
    pads = []
    for i, stride in enumerate(strides):
        total = max(0, kernel[i] - (image[1 + i] - 1) % stride - 1) if is_same else 0
        pads.append((total // 2, total - total // 2))
    sizes = [(image[1 + i] - 1) * strides[i] + kernel[i] - sum(pads[i]) for i in range(2)]
    op.values.set_shape(op.output(), (image[0], *sizes, weights[0]))
    inputs = [op.values.get(op.index(0), first=True), op.values.arranged(op.index(1), (3, 0, 1, 2))]
    if op.has(2):
        inputs.append(op.values.get(op.index(2)))
    result = op.node(
        "ConvTranspose",
        *inputs,
        strides=strides,
        pads=[before for before, _ in pads] + [after for _, after in pads],
        kernel_shape=kernel,
    )
    op.finish(result, first=True)


def _window(op: OperatorContext) -> tuple[bool, list[int], list[int]]:
    """Return a pool's padding, strides and window."""
    padding, stride_width, stride_height, width, height = _numbers(op, 5)
    strides, kernel = [stride_height, stride_width], [height, width]
    if min(*strides, *kernel) < 1:
        raise op.bad_file(f"a window of {kernel} and strides {strides}")
    if math.prod(kernel) > _LARGEST_WINDOW:
        raise op.unsupported_form(f"a window of {kernel}; the limit is {_LARGEST_WINDOW} elements")
    return _padding(op, padding), strides, kernel


def _pool_with_indices(op: OperatorContext) -> None:
    """Give the largest elements, and for each its number in its window, plus 0.1: the network rounds that down."""
    image = op.need_rank(0, 4)
    is_same, strides, kernel = _window(op)
    pads, sizes = [], []
    for i in range(2):
        before, after = same_pads(image[1 + i], kernel[i], strides[i], 1) if is_same else (0, 0)
        pads.append((before, after))
        sizes.append((image[1 + i] + before + after - kernel[i]) // strides[i] + 1)
    if min(sizes) < 1:
        raise op.bad_file(f"a window of {kernel} is larger than an image of {list(image)}")
    for position in range(2):
        op.values.set_shape(op.output(position), (image[0], *sizes, image[3]))
    x = op.values.get(op.index(0), first=True)
    flat = [0, 0, *(before for before, _ in pads), 0, 0, *(after for _, after in pads)]
    if any(flat):
        lowest = op.scalar(float(np.finfo(np.float32).min), op.index(0))
        x = op.node("Pad", x, op.writer.ints(flat), lowest)
    axes, steps = op.writer.ints([2, 3]), op.writer.ints(strides)
    parts = []
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            ends = [
                start + (size - 1) * stride + 1
                for start, size, stride in zip((row, column), sizes, strides, strict=True)
            ]
            part = op.node("Slice", x, op.writer.ints([row, column]), op.writer.ints(ends), axes, steps)
            parts.append(op.node("Unsqueeze", part, op.writer.ints([4])))
    stacked = op.node("Concat", *parts, axis=4)
    op.finish(op.node("ReduceMax", stacked, op.writer.ints([4]), keepdims=0), first=True)
    number = op.node("Cast", op.node("ArgMax", stacked, axis=4, keepdims=0), to=1)
    op.finish(op.node("Add", number, op.scalar(0.1, op.output(1))), first=True, position=1)


def _unpool(op: OperatorContext) -> None:
    """Put each element where its number says in its window, and zeros elsewhere."""
    image = op.need_rank(0, 4)
    _, strides, kernel = _window(op)
    if strides != kernel:
        raise op.unsupported_form(f"windows of {kernel} that do not lie side by side, at strides {strides}")
    batch, height, width, channels = image
    op.values.set_shape(op.output(), (batch, height * kernel[0], width * kernel[1], channels))
    ends = op.writer.ints([batch, channels, height, 1, width, 1])
    x, numbers = (op.node("Reshape", op.values.get(op.index(i), first=True), ends) for i in range(2))
    cells = np.arange(math.prod(kernel), dtype=np.float32).reshape(1, 1, 1, kernel[0], 1, kernel[1])
    chosen = op.node("Equal", op.node("Floor", numbers), op.writer.weight(cells))
    result = op.node("Where", chosen, x, op.scalar(0.0, op.index(0)))
    sizes = [batch, channels, height * kernel[0], width * kernel[1]]
    op.finish(op.node("Reshape", result, op.writer.ints(sizes)), first=True)


def _landmarks_to_matrix(op: OperatorContext) -> None:
    """Give the matrix that takes the pixels of a crop to the image: the crop holds some landmarks, turned upright."""
    _need_version(op, 2)
    shape = op.need_rank(0, 3)
    options = FlexibleOptions(op)
    names = ("left_rotation_idx", "right_rotation_idx", "output_width", "output_height")
    left, right, out_width, out_height = (options.integer(name) for name in names)
    scales = [options.number("scale_x"), options.number("scale_y")]
    target = options.number("target_rotation_radians")
    subset = options.integers("subset_idxs")
    rows = [left, right, *subset]
    if shape[0] != 1 or shape[2] < 2 or not subset or any(not 0 <= row < shape[1] for row in rows):
        raise op.bad_file(f"it takes landmarks that {list(shape)} does not have")
    if min(out_width, out_height, *scales) <= 0:
        raise op.bad_file("its sizes and scales are not above zero")

    def constant(*values: float, shape: Sequence[int]) -> str:
        return op.writer.weight(np.array(values, np.float32).reshape(shape))

    flat = op.values.reshaped(op.index(0), shape[1:])
    points = op.node("Slice", flat, *(op.writer.ints([i]) for i in (0, 2, 1)))
    ends = op.node("Gather", points, op.writer.ints([left, right]), axis=0)
    apart = op.node("MatMul", constant(-1, 1, shape=(1, 2)), ends)
    length = op.node("ReduceL2", apart, op.writer.ints([1]), keepdims=1)
    # The direction of landmarks at one place is that of the x axis.
    is_zero = op.node("Equal", length, constant(0, shape=(1, 1)))
    safe = op.node("Where", is_zero, constant(1, shape=(1, 1)), length)
    direction = op.node("Where", is_zero, constant(1, 0, shape=(1, 2)), op.node("Div", apart, safe))
    # With d = (cos a, sin a), the rotation by r = target - a has cos r = d · (cos t, sin t), sin r = d · (sin t, -cos t).
    cos, sin = math.cos(target), math.sin(target)
    turns = constant(cos, -sin, sin, cos, sin, cos, -cos, sin, shape=(2, 4))
    turn = op.node("Reshape", op.node("MatMul", direction, turns), op.writer.ints([2, 2]))
    chosen = op.node("Gather", points, op.writer.ints(subset), axis=0)
    turned = op.node("MatMul", chosen, op.node("Transpose", turn, perm=[1, 0]))
    largest, smallest = (
        op.node(kind, turned, op.writer.ints([0]), keepdims=1) for kind in ("ReduceMax", "ReduceMin")
    )
    # A row vector times `turn` is turned back.
    middle = op.node("Mul", op.node("Add", largest, smallest), constant(0.5, shape=()))
    center = op.node("MatMul", middle, turn)
    factors = constant(scales[0] / out_width, scales[1] / out_height, shape=(1, 2))
    extent = op.node("Mul", op.node("Sub", largest, smallest), factors)
    linear = op.node("Mul", op.node("Transpose", turn, perm=[1, 0]), extent)
    back = op.node("MatMul", linear, constant(-out_width / 2, -out_height / 2, shape=(2, 1)))
    shift = op.node("Add", op.node("Transpose", center, perm=[1, 0]), back)
    upper = op.node("Concat", linear, constant(0, 0, shape=(2, 1)), shift, axis=1)
    result = op.node("Concat", upper, constant(0, 0, 1, 0, 0, 0, 0, 1, shape=(2, 4)), axis=0)
    op.values.set_shape(op.output(), (1, 4, 4))
    op.finish(op.node("Reshape", result, op.writer.ints([1, 4, 4])))


def _matrix(op: OperatorContext, position: int) -> tuple[str, str]:
    """Return the linear part and the shift of a matrix, for points in rows."""
    if math.prod(op.shape(position)) != 16:
        raise op.unsupported_form(
            f"a matrix of shape {list(op.shape(position))}; tunefarm supports one of 4x4"
        )
    whole = op.values.reshaped(op.index(position), [4, 4])
    rows = op.node("Transpose", whole, perm=[1, 0])
    starts = [op.writer.ints(values) for values in ([0, 0], [2, 2], [0, 1])]
    linear = op.node("Slice", rows, *starts)
    shift = op.node("Slice", rows, *(op.writer.ints(values) for values in ([3, 0], [4, 2], [0, 1])))
    return linear, shift


def _transform_landmarks(op: OperatorContext) -> None:
    _need_version(op, 2)
    shape = op.need_rank(0, 3)
    if shape[2] not in (2, 3):
        raise op.bad_file(f"landmarks of {shape[2]} dimensions")
    op.values.set_shape(op.output(), shape)
    linear, shift = _matrix(op, 1)
    x = op.values.get(op.index(0))
    plane = x
    if shape[2] == 3:
        plane, depth = op.writer.nodes(
            "Split", [x, op.writer.ints([2, 1])], [f"{op.writer.scope}_{i}" for i in range(2)], axis=2
        )
    result = op.node("Add", op.node("MatMul", plane, linear), shift)
    op.finish(result if shape[2] == 2 else op.node("Concat", result, depth, axis=2))


def _sampled(op: OperatorContext, positions: str, image: Sequence[int]) -> str:
    """Return an image at positions in pixels, x before y, interpolated; beyond its edges are zeros."""
    # GridSample counts from -1 at the left edge of the first pixel to 1 at the right edge of the last.
    sizes = np.array([image[2], image[1]], np.float32)
    scaled = op.node("Mul", positions, op.writer.weight(2 / sizes))
    grid = op.node("Add", scaled, op.writer.weight(1 / sizes - 1))
    x = op.values.get(op.index(0), first=True)
    return op.node("GridSample", x, grid, mode="linear", padding_mode="zeros", align_corners=0)


def _transform_image(op: OperatorContext) -> None:
    """Crop an image by a matrix that takes the crop's pixels to the image's."""
    _need_version(op, 1, 2)
    image = op.need_rank(0, 4)
    options = FlexibleOptions(op)
    height, width = options.integer("output_height"), options.integer("output_width")
    if image[0] != 1 or not 0 < height * width < 1 << 28:
        raise op.bad_file(f"a crop of {height} by {width} of {list(image)}")
    linear, shift = _matrix(op, 1)
    # Version 2 counts from the pixels' corners, version 1 from their centres.
    half = 0.5 if op.operator.version == 2 else 0.0
    x, y = np.meshgrid(np.arange(width) + half, np.arange(height) + half)
    pixels = op.writer.weight(np.stack([x, y], -1).reshape(-1, 2).astype(np.float32))
    positions = op.node("Add", op.node("MatMul", pixels, linear), shift)
    if half:
        positions = op.node("Sub", positions, op.writer.weight(np.array(half, np.float32)))
    zero, ends = np.zeros((1, 2), np.float32), np.array([[image[2] - 1, image[1] - 1]], np.float32)
    nearest = op.node("Min", op.node("Max", positions, op.writer.weight(zero)), op.writer.weight(ends))
    inside = op.node("Cast", op.node("Equal", positions, nearest), to=1)
    inside = op.node("ReduceMin", inside, op.writer.ints([1]), keepdims=1)
    inside = op.node("Reshape", inside, op.writer.ints([1, 1, height, width]))
    positions = op.node("Reshape", nearest, op.writer.ints([1, height, width, 2]))
    op.values.set_shape(op.output(), (1, height, width, image[3]))
    op.finish(op.node("Mul", _sampled(op, positions, image), inside), first=True)


def _resample(op: OperatorContext) -> None:
    image, positions = op.need_rank(0, 4), op.need_rank(1, 4)
    if positions != (*image[:3], 2):
        raise op.bad_file(f"positions of shape {list(positions)} for an image of {list(image)}")
    op.values.set_shape(op.output(), image)
    op.finish(_sampled(op, op.values.get(op.index(1)), image), first=True)


CONVERTERS: Mapping[str, Converter] = {
    f"custom operator {name}": converter
    for name, converter in (
        ("Convolution2DTransposeBias", _transposed_convolution),
        ("MaxPoolingWithArgmax2D", _pool_with_indices),
        ("MaxUnpooling2D", _unpool),
        ("Landmarks2TransformMatrix", _landmarks_to_matrix),
        ("TransformLandmarks", _transform_landmarks),
        ("TransformTensor", _transform_image),
        ("TransformTensorBilinear", _transform_image),
        ("Resampler", _resample),
    )
}
