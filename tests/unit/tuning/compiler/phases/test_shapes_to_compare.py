"""In which shapes the code for all sizes is compared, and what becomes of those that ONNX Runtime refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunefarm_tuning.compiler.phases.shapes_to_compare import (
    shapes_beyond_tiles,
    shapes_to_compare,
    without_refused,
)
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShapes
from tunefarm_tuning.workload.task import TensorSpec


def model(*shape: int) -> Model:
    return Model(
        path=Path("net.onnx"),
        sha256="0",
        inputs=(TensorSpec(name="x", shape=shape, dtype="float32"),),
        outputs=(),
        operators=(),
        opset=17,
        num_params=0,
    )


def open_shapes_of(
    names: str, conditions: tuple[Mapping[str, Any], ...] = (), multiple: int = 1, **minima: int
) -> OpenShapes:
    shape = tuple(OpenDimension(name=name, multiple=multiple) for name in names)
    return OpenShapes(shapes=(shape,), minima=minima, maxima={}, conditions=conditions)


def test_larger_smaller_odd_and_smallest_shapes_are_compared() -> None:
    compared = [shapes["x"] for shapes in shapes_to_compare(model(8, 16), open_shapes_of("nt"))]
    assert compared == [(8, 16), (9, 17), (6, 12), (3, 5), (1, 1)]
    compared = [
        shapes["x"] for shapes in shapes_to_compare(model(64, 96), open_shapes_of("hw", multiple=32, h=64))
    ]
    assert compared == [(64, 96), (96, 128), (64, 64), (96, 160), (64, 32)]


def test_sizes_beyond_a_tile_are_compared_as_far_as_the_work_allows() -> None:
    for main, beyond in (((8, 16), (8, 67)), ((16, 1), (67, 1)), ((40, 50), (67, 67)), ((2, 3), None)):
        shapes = shapes_beyond_tiles(model(*main), open_shapes_of("nt"))
        assert (None if shapes is None else shapes["x"]) == beyond
    shapes = shapes_beyond_tiles(model(32, 96), open_shapes_of("hw", multiple=32))
    assert shapes is not None
    assert shapes["x"] == (96, 96)


def test_sums_follow_what_they_add_up() -> None:
    """However many dimensions there are: sizes are tried of those alone that are no sums."""
    total = {"kind": "equal", "size": "t", "of": ["+", "p", "w"], "node": "'mask' (input)"}
    for is_condition in (True, False):
        open_shapes = open_shapes_of("abpwt", (total,) if is_condition else ())
        open_shapes = replace(open_shapes, usual=() if is_condition else (total,))
        compared = [shapes["x"] for shapes in shapes_to_compare(model(8, 4, 9, 1, 10), open_shapes)]
        assert compared == [
            (8, 4, 9, 1, 10),
            (9, 5, 10, 2, 12),
            (6, 3, 6, 1, 7),
            (3, 5, 7, 11, 18),
            (1, 1, 1, 1, 2),
        ]


def test_shapes_of_which_none_other_can_be_compared_are_refused() -> None:
    equal = {"kind": "equal", "size": ["*", "n", "t"], "of": 144, "node": "'a' (Reshape)"}
    fixed = {"kind": "equal", "size": "n", "of": 9, "node": "'a' (Reshape)"}
    with pytest.raises(InvalidModelError, match="no other shapes near those that were given") as caught:
        shapes_to_compare(model(9, 16), open_shapes_of("nt", (equal, fixed)))
    assert caught.value.code == "unsupported-operator"


def test_all_of_them_meet_the_conditions() -> None:
    conditions = ({"kind": "multiple", "size": ["*", "n", "t"], "of": 12, "node": "'a' (Reshape)"},)
    compared = [shapes["x"] for shapes in shapes_to_compare(model(4, 9), open_shapes_of("nt", conditions))]
    assert compared[0] == (4, 9)
    assert len(compared) >= 4
    assert all(n * t % 12 == 0 for n, t in compared)


def test_sizes_below_those_that_onnx_runtime_runs_are_not_taken() -> None:
    open_shapes = open_shapes_of("nt")
    left = without_refused(open_shapes, model(8, 16), [{"x": (1, 1)}], [{"x": (8, 16)}, {"x": (3, 5)}])
    assert left.minima == {"n": 3, "t": 5}
    with pytest.raises(InvalidModelError, match=r"does not run the shapes x \[9, 17\]"):
        without_refused(open_shapes, model(8, 16), [{"x": (9, 17)}], [{"x": (8, 16)}, {"x": (3, 5)}])
