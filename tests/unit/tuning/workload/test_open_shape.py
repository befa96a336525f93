"""Open dimensions: sizes that fit, and shapes bound to them."""

from __future__ import annotations

import json

import pytest

from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShapes

BATCH, WIDTH = OpenDimension(name="batch"), OpenDimension(name="width", multiple=8)
SHAPES = OpenShapes(
    shapes=((BATCH, 3, WIDTH), (BATCH,)), minima={"width": 16}, maxima={"width": 100, "batch": 4}
)


def test_dimensions_are_listed_once() -> None:
    assert SHAPES.dimensions == (BATCH, WIDTH)
    assert SHAPES.bound({"batch": 2, "width": 24}) == [(2, 3, 24), (2,)]
    assert SHAPES.sizes_of([(2, 3, 24), (2,)]) == {"batch": 2, "width": 24}


@pytest.mark.parametrize(
    ("name", "size", "fitting"),
    [("width", 50, 48), ("width", 1, 16), ("width", 500, 96), ("batch", 9, 4), ("batch", 0, 1)],
)
def test_a_size_is_brought_within_the_limits(name: str, size: int, fitting: int) -> None:
    assert SHAPES.fitting(name, size) == fitting


def test_they_survive_json() -> None:
    assert OpenShapes.from_json(json.loads(json.dumps(SHAPES.to_json()))) == SHAPES
