"""In which order bindings are tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from tunefarm_tuning.frontend.onnx.proposals.trial import tried_binding
from tunefarm_tuning.workload.binding import Binding


class Session:
    """Stands in for ONNX Runtime with a network whose heights of 28 and 48 alone fit, and which says that of 28."""

    def __init__(self, model: bytes) -> None:
        shape = onnx.load_model_from_string(model).graph.input[0].type.tensor_type.shape
        self._height = shape.dim[2].dim_value

    def run(self, *_arguments: Any) -> list[Any]:
        if self._height not in (28, 48):
            raise RuntimeError("Concat: Axis 2 has mismatched dimensions of 28 and 7")
        return []


@pytest.mark.parametrize(
    ("channels", "shape"),
    [
        (3, [1, 3, 48, 320]),  # an image: a usual size, and not the first that runs
        (4, [1, 4, 28, 64]),  # a map of features has no usual sizes
    ],
)
def test_usual_sizes_of_images_come_before_corrections(
    channels: int, shape: list[int], tmp_path: Path
) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]>\nnet (float[n, {channels}, h, w] x) => (float[a] y) {{ y = Identity(x) }}'
    path = tmp_path / "net"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    tried = tried_binding(str(path), Binding(), Session, max_tensor_bytes=1 << 24)
    assert tried is not None
    assert tried["binding"]["shapes"] == {"x": shape}
    assert tried["runs"]
