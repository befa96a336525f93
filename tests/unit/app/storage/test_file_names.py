"""The file names of models."""

from __future__ import annotations

import pytest

from tunefarm_app.storage.file_names import file_end, file_stem


@pytest.mark.parametrize(
    ("name", "stem", "end"),
    [
        ("net.onnx", "net", ".onnx"),
        ("net.tflite", "net", ".tflite"),
        ("NET.TFLITE", "NET", ".tflite"),
        ("Net.Onnx", "Net", ".onnx"),
        ("my net (2)", "my-net-2", ".onnx"),
        (".onnx", "model", ".onnx"),
        ("v1.2", "v1.2", ".onnx"),
    ],
)
def test_a_name_s_end_is_no_part_of_its_stem(name: str, stem: str, end: str) -> None:
    assert (file_stem(name), file_end(name)) == (stem, end)
