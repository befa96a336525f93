"""Bytes that are resized between products of bytes, as ONNX Runtime's quantiser leaves them, are exactly its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding


def loaded(folder: Path, dtype: Any, sizes: tuple[int, int], **how: Any) -> RelaxNetwork:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    g = GraphBuilder()
    x = g.input("x", [1, 3, 8, 6], kind)
    g.output(g.node("Resize", x, "", "", g.ints(1, 3, *sizes), mode="linear", **how), dtype=kind)
    path = folder / "model"
    path.write_bytes(g.model(opset=18).SerializeToString())
    return load_relax(path, Binding(), parse_target("host"))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("sizes", "coordinates"),
    [((16, 12), "half_pixel"), ((32, 24), "half_pixel"), ((4, 3), "asymmetric"), ((16, 24), "asymmetric")],
)
def test_they_are_cut_to_integers(
    dtype: Any, sizes: tuple[int, int], coordinates: str, tmp_path: Path
) -> None:
    network = loaded(tmp_path, dtype, sizes, coordinate_transformation_mode=coordinates)
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max + 1, (1, 3, 8, 6)).astype(dtype)
    x[0, 1], x[0, 2] = limits.max, limits.min
    (ours,), (theirs,) = (
        built_outputs(network, [x], tmp_path),
        reference_outputs(tmp_path / "model", network, [x]),
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("dtype", "sizes", "how"),
    [
        (np.int8, (11, 17), {}),
        (np.uint8, (16, 12), {"coordinate_transformation_mode": "align_corners"}),
        (np.int8, (16, 12), {"antialias": 1}),
        (np.int32, (16, 12), {}),
    ],
    ids=["thirds", "align_corners", "antialias", "int32"],
)
def test_others_depend_on_the_order_of_sums(
    dtype: Any, sizes: tuple[int, int], how: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InvalidModelError, match=r"mode linear of u?int"):
        loaded(tmp_path, dtype, sizes, **how)
