"""`RoiAlign` of regions without an area, as padded lists of boxes have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

BOXES = [
    [0, 0, 0, 0],
    [3, 3, 3, 3],
    [5, 1, 5, 4],
    [1, 5, 4, 5],
    [2, 2, 6, 2],
    [51, 51, 51, 51],
    [1, 1, 5, 5],
    [0.3, 0.3, 0.30001, 4],
]


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_regions_without_an_area_are_zeros(mode: str, scale: float, tmp_path: Path) -> None:
    """Before, these were whatever lay in memory: earlier numbers of the process."""
    g = GraphBuilder()
    x = g.input("x", [1, 2, 8, 8])
    rois = g.input("rois", [len(BOXES), 4])
    batch = g.input("batch", [len(BOXES)], onnx.TensorProto.INT64)
    sizes = {"output_height": 2, "output_width": 2, "spatial_scale": scale}
    g.output(g.node("RoiAlign", x, rois, batch, coordinate_transformation_mode=mode, **sizes))
    path = tmp_path / "model"
    path.write_bytes(g.model(18).SerializeToString())
    inputs = [
        np.full((1, 2, 8, 8), 7, np.float32),
        np.array(BOXES, np.float32),
        np.zeros(len(BOXES), np.int64),
    ]
    loaded = load_relax(path, Binding(), parse_target("host"))
    (ours,) = built_outputs(loaded, inputs, tmp_path)
    (theirs,) = reference_outputs(path, loaded, inputs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert mode != "half_pixel" or not ours[:6].any()
