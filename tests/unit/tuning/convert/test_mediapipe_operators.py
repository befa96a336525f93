"""MediaPipe's custom operators compute what its specification says."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from flatbuffers import flexbuffers
from numpy.typing import NDArray
from tflite_zoo import Net
from tflite_zoo.custom import CUSTOM, REFERENCES

from tunefarm_convert.tflite.convert import convert
from tunefarm_tuning.core.errors import InvalidModelError


def run(data: bytes, feeds: list[NDArray[Any]]) -> list[NDArray[Any]]:
    model = convert(data)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [value.name for value in model.graph.input]
    return [np.asarray(output) for output in session.run(None, dict(zip(names, feeds, strict=True)))]


@pytest.mark.parametrize("name", list(CUSTOM))
def test_the_numbers_are_the_specification_s(name: str) -> None:
    case = CUSTOM[name]()
    outputs, expected = run(case.data, case.feeds()), REFERENCES[name](*case.feeds())
    for output, wanted in zip(outputs, expected, strict=True):
        assert (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4)


def test_a_crop_is_zero_beyond_the_image() -> None:
    """A matrix that leaves part of the crop outside; at the very edge the image still counts."""
    matrix = np.array([[[2, 0, 0, -1.5], [0, 1, 0, -0.5], [0, 0, 1, 0], [0, 0, 0, 1]]], np.float32)
    image = np.ones((1, 7, 9, 3), np.float32)
    (output,) = run(CUSTOM["crop_of_an_image_version_2"]().data, [image, matrix])
    (expected,) = REFERENCES["crop_of_an_image_version_2"](image, matrix)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    assert expected.min() == 0
    assert expected.max() == 1


def custom(kind: str, shapes: list[tuple[int, ...]], options: bytes, version: int = 1) -> bytes:
    net = Net()
    inputs = [net.input(shape) for shape in shapes]
    outputs = [net.tensor((1, 2, 2, 1)), net.tensor((1, 2, 2, 1))]
    net.op_of("CUSTOM", inputs, outputs, custom=kind, custom_options=options, version=version)
    return net.data(outputs)


IMAGE = (1, 4, 4, 1)
PACKED = struct.pack("<6i", 1, 2, 2, 2, 2, 0)
LANDMARKS = {
    "left_rotation_idx": 0,
    "right_rotation_idx": 9,
    "output_height": 2,
    "output_width": 2,
    "scale_x": 1.0,
    "scale_y": 1.0,
    "target_rotation_radians": 0.0,
    "subset_idxs": [0, 1],
}


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (custom("MaxPoolingWithArgmax2D", [IMAGE], PACKED[:7]), "invalid-tflite", "cut off"),
        (
            custom("MaxPoolingWithArgmax2D", [IMAGE], b"\x07" + PACKED[1:]),
            "invalid-tflite",
            "neither SAME nor VALID",
        ),
        (
            custom("MaxPoolingWithArgmax2D", [IMAGE], struct.pack("<6i", 1, 2, 2, 9, 9, 0)),
            "unsupported-operator",
            "64 elements",
        ),
        (
            custom("MaxUnpooling2D", [IMAGE, IMAGE], struct.pack("<6i", 1, 1, 1, 2, 2, 0)),
            "unsupported-operator",
            "side by side",
        ),
        (
            custom("Convolution2DTransposeBias", [IMAGE, (1, 2, 2, 5)], PACKED),
            "invalid-tflite",
            "do not|strides",
        ),
        (
            custom("Landmarks2TransformMatrix", [(1, 8, 3)], bytes(flexbuffers.Dumps(LANDMARKS)), 2),
            "invalid-tflite",
            "landmarks that",
        ),
        (custom("Landmarks2TransformMatrix", [(1, 8, 3)], b"\x01\x02", 2), "invalid-tflite", "malformed"),
        (custom("Landmarks2TransformMatrix", [(1, 1, 1, 24)], b"", 1), "unsupported-operator", "version 1"),
        (custom("TransformLandmarks", [(1, 5, 4), (1, 4, 4)], b"", 2), "invalid-tflite", "4 dimensions"),
        (
            custom("TransformLandmarks", [(1, 5, 2), (1, 3, 3)], b"", 2),
            "unsupported-operator",
            "matrix of shape",
        ),
        (custom("Resampler", [IMAGE, IMAGE], b""), "invalid-tflite", "positions of shape"),
    ],
)
def test_what_cannot_be_read_is_said(data: bytes, code: str, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words) as caught:
        convert(data)
    assert caught.value.code == code
