"""MediaPipe's custom operators, each with a slow computation of its results: LiteRT does not have these operators.

The computations follow MediaPipe's specification element by element (mediapipe/util/tflite/operations, Apache 2.0).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from numpy.typing import NDArray

from tflite_zoo.cases import Case, Net

Array = NDArray[np.float32]
Reference = Callable[..., list[Array]]
CUSTOM: dict[str, Callable[[], Case]] = {}
REFERENCES: dict[str, Reference] = {}
SAME, VALID = 1, 2


def _net(
    name: str,
    kind: str,
    inputs: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    options: bytes,
    reference: Reference,
    version: int = 1,
    constants: Sequence[Array] = (),
) -> None:
    def make() -> Case:
        net = Net()
        taken = [net.input(shape) for shape in inputs] + [net.constant(array) for array in constants]
        given = [net.tensor(shape) for shape in outputs]
        net.op_of("CUSTOM", taken, given, custom=kind, custom_options=options, version=version)
        return net.case(*given)

    CUSTOM[name] = make
    REFERENCES[name] = reference


def transposed(image: Array, weights: Array, bias: Array, stride: tuple[int, int], padding: int) -> Array:
    _, height, width, _ = image.shape
    out, kernel_height, kernel_width, _ = weights.shape
    lost = [
        max(0, kernel - (size - 1) % step - 1) if padding == SAME else 0
        for kernel, size, step in zip((kernel_height, kernel_width), (height, width), stride, strict=True)
    ]
    sizes = [
        stride[0] * (height - 1) + kernel_height - lost[0],
        stride[1] * (width - 1) + kernel_width - lost[1],
    ]
    result = np.tile(bias, (1, *sizes, 1)).astype(np.float64)
    for y, x, i, j in np.ndindex(height, width, kernel_height, kernel_width):
        row, column = y * stride[0] - lost[0] // 2 + i, x * stride[1] - lost[1] // 2 + j
        if 0 <= row < sizes[0] and 0 <= column < sizes[1]:
            result[0, row, column] += weights[:, i, j] @ image[0, y, x].astype(np.float64)
    assert result.shape[-1] == out
    return result.astype(np.float32)


def _transposed(
    name: str, stride: tuple[int, int], padding: int, kernel: tuple[int, int], out: tuple[int, int]
) -> None:
    rng = np.random.default_rng(7)
    weights, bias = rng.standard_normal((2, *kernel, 3)).astype(np.float32), np.array([0.5, -1], np.float32)
    _net(
        name,
        "Convolution2DTransposeBias",
        [(1, 4, 5, 3)],
        [(1, *out, 2)],
        struct.pack("<3i", padding, stride[1], stride[0]),
        lambda image: [transposed(image, weights, bias, stride, padding)],
        constants=[weights, bias],
    )


_transposed("transposed_with_bias", (2, 2), SAME, (2, 2), (8, 10))
_transposed("transposed_with_bias_overlapping", (2, 3), SAME, (3, 4), (8, 15))
_transposed("transposed_with_bias_valid", (1, 2), VALID, (3, 3), (6, 11))


def pooled(image: Array, kernel: tuple[int, int], stride: tuple[int, int], padding: int) -> list[Array]:
    _, height, width, channels = image.shape
    sizes, before = [], []
    for size, window, step in zip((height, width), kernel, stride, strict=True):
        count = -(-size // step) if padding == SAME else (size - window) // step + 1
        sizes.append(count)
        before.append(max(0, (count - 1) * step + window - size) // 2)
    largest = np.full((1, *sizes, channels), -np.inf, np.float32)
    numbers = np.zeros_like(largest)
    for i, j, y, x, c in np.ndindex(*sizes, *kernel, channels):
        row, column = i * stride[0] - before[0] + y, j * stride[1] - before[1] + x
        if 0 <= row < height and 0 <= column < width and image[0, row, column, c] > largest[0, i, j, c]:
            largest[0, i, j, c] = image[0, row, column, c]
            numbers[0, i, j, c] = y * kernel[1] + x + 0.1
    return [largest, numbers]


def _pool(
    name: str, kernel: tuple[int, int], stride: tuple[int, int], padding: int, out: tuple[int, int]
) -> None:
    _net(
        name,
        "MaxPoolingWithArgmax2D",
        [(1, 6, 7, 3)],
        [(1, *out, 3)] * 2,
        struct.pack("<6i", padding, stride[1], stride[0], kernel[1], kernel[0], 0),
        lambda image: pooled(image, kernel, stride, padding),
    )


_pool("pool_with_indices", (2, 2), (2, 2), SAME, (3, 4))
_pool("pool_with_indices_overlapping", (3, 2), (2, 1), SAME, (3, 7))
_pool("pool_with_indices_valid", (2, 3), (2, 2), VALID, (3, 3))


def unpooled(image: Array, numbers: Array, kernel: tuple[int, int]) -> Array:
    _, height, width, channels = image.shape
    result = np.zeros((1, height * kernel[0], width * kernel[1], channels), np.float32)
    for y, x, c in np.ndindex(height, width, channels):
        i, j = divmod(int(numbers[0, y, x, c]), kernel[1])
        result[0, y * kernel[0] + i, x * kernel[1] + j, c] = image[0, y, x, c]
    return result


def _pool_and_unpool() -> Case:
    net = Net()
    x, options = net.input((1, 6, 6, 3)), struct.pack("<6i", SAME, 3, 2, 3, 2, 0)
    parts = [net.tensor((1, 3, 2, 3)), net.tensor((1, 3, 2, 3))]
    net.op_of("CUSTOM", [x], parts, custom="MaxPoolingWithArgmax2D", custom_options=options)
    result = net.tensor((1, 6, 6, 3))
    net.op_of("CUSTOM", parts, [result], custom="MaxUnpooling2D", custom_options=options)
    return net.case(result)


CUSTOM["pool_and_unpool"] = _pool_and_unpool
REFERENCES["pool_and_unpool"] = lambda image: [
    unpooled(*pooled(image, (2, 3), (2, 3), SAME), (2, 3)),
]


def _rotation(angle: float) -> NDArray[np.float64]:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def crop_matrix(landmarks: Array, options: dict[str, Any]) -> Array:
    points = landmarks[0, :, :2].astype(np.float64)
    left, right = points[options["left_rotation_idx"]], points[options["right_rotation_idx"]]
    angle = options["target_rotation_radians"] - math.atan2(right[1] - left[1], right[0] - left[0])
    turned = points[options["subset_idxs"]] @ _rotation(angle).T
    low, high = turned.min(0), turned.max(0)
    center = _rotation(-angle) @ ((low + high) / 2)
    sizes = np.array([options["output_width"], options["output_height"]])
    scales = np.array([options["scale_x"], options["scale_y"]]) * (high - low) / sizes
    linear = _rotation(-angle) @ np.diag(scales)
    result = np.eye(4)
    result[:2, :2] = linear
    result[:2, 3] = center + linear @ (-sizes / 2)
    return result[None].astype(np.float32)


_CROP = {
    "left_rotation_idx": 1,
    "right_rotation_idx": 4,
    "output_height": 16,
    "output_width": 8,
    "scale_x": 1.5,
    "scale_y": 1.25,
    "target_rotation_radians": 0.25,
    "subset_idxs": [0, 2, 3, 5, 6, 7],
}
_SAME_POINT = _CROP | {"right_rotation_idx": 1, "target_rotation_radians": 0.0}
for _name, _options in (("crop_of_landmarks", _CROP), ("crop_of_landmarks_at_one_point", _SAME_POINT)):
    _net(
        _name,
        "Landmarks2TransformMatrix",
        [(1, 8, 3)],
        [(1, 4, 4)],
        bytes(flexbuffers.Dumps(_options)),
        lambda landmarks, options=_options: [crop_matrix(landmarks, options)],
        version=2,
    )


def moved(landmarks: Array, matrix: Array) -> Array:
    result = landmarks.copy()
    plane = landmarks[..., :2].astype(np.float64)
    result[..., :2] = plane @ matrix[0, :2, :2].T.astype(np.float64) + matrix[0, :2, 3]
    return result


for _dims in (2, 3):
    _shape = (1, 5, _dims)
    _net(
        f"landmarks_of_{_dims}_dimensions",
        "TransformLandmarks",
        [_shape, (1, 4, 4)],
        [_shape],
        b"",
        lambda landmarks, matrix: [moved(landmarks, matrix)],
        version=2,
    )


def sampled(image: Array, x: float, y: float) -> NDArray[np.float64]:
    result = np.zeros(image.shape[-1])
    left, top = math.floor(x), math.floor(y)
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
            result += (1 - abs(x - column)) * (1 - abs(y - row)) * image[row, column]
    return result


def cropped(image: Array, matrix: Array, size: tuple[int, int], shift: float) -> Array:
    result = np.zeros((1, *size, image.shape[-1]), np.float32)
    for row, column in np.ndindex(*size):
        pixel = np.array([column + shift, row + shift, 0, 1])
        x, y = matrix[0, :2].astype(np.float64) @ pixel - shift
        if 0 <= x <= image.shape[2] - 1 and 0 <= y <= image.shape[1] - 1:
            result[0, row, column] = sampled(image[0], x, y)
    return result


_SIZE = bytes(flexbuffers.Dumps({"output_height": 6, "output_width": 5}))
for _version, _kind in ((1, "TransformTensor"), (2, "TransformTensorBilinear")):
    _net(
        f"crop_of_an_image_version_{_version}",
        _kind,
        [(1, 7, 9, 3), (1, 4, 4)],
        [(1, 6, 5, 3)],
        _SIZE,
        lambda image, matrix, version=_version: [cropped(image, matrix, (6, 5), 0.5 * (version - 1))],
        version=_version,
    )


def resampled(image: Array, positions: Array) -> Array:
    return np.stack(
        [
            np.stack([np.stack([sampled(part, x, y) for x, y in row]) for row in rows])
            for part, rows in zip(image, positions, strict=True)
        ]
    ).astype(np.float32)


_net(
    "resampled",
    "Resampler",
    [(2, 4, 5, 3), (2, 4, 5, 2)],
    [(2, 4, 5, 3)],
    b"",
    lambda image, positions: [resampled(image, positions)],
)
