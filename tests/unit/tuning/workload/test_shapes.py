"""The shapes that a user gives, and their combinations."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.workload.shapes import (
    combinations,
    least_batch,
    read_shape_lines,
    shape_choices,
    stored_shape,
)


def combined(
    shapes: dict[str, Any], symbols: dict[str, list[str]] | None = None
) -> list[tuple[dict[str, tuple[int, ...]], int]]:
    choices = {name: shape_choices(shape, name=name) for name, shape in shapes.items()}
    return [(dict(c.shapes), c.weight) for c in combinations(choices, symbols or {})]


def test_one_shape_is_one_combination() -> None:
    assert combined({"x": (1, 3), "y": "4"}) == [({"x": (1, 3), "y": (4,)}, 1)]


def test_the_combination_with_most_elements_comes_first() -> None:
    sizes = [shapes["x"] for shapes, _ in combined({"x": "1|4,8|16"})]
    assert sizes == [(4, 16), (1, 8), (1, 16), (4, 8)]


def test_a_weight_can_make_a_small_shape_the_first() -> None:
    assert combined({"x": "1,160:9|320"}) == [({"x": (1, 160)}, 9), ({"x": (1, 320)}, 1)]


def test_dimensions_of_one_name_vary_together() -> None:
    given = {"ids": "1..8,16|64@1,8", "mask": "1..8,16|64@1,8"}
    names = {"ids": ["batch", "length"], "mask": ["batch", "length"]}
    listed = combined(given, names)
    assert len(listed) == 4
    assert all(shapes["ids"] == shapes["mask"] for shapes, _ in listed)


def test_dimensions_of_different_names_do_not() -> None:
    assert len(combined({"a": "1,16|64", "b": "1,16|64"}, {"a": ["", "n"], "b": ["", "m"]})) == 4


def test_nameless_dimensions_at_one_place_vary_together_if_their_sizes_are_the_same() -> None:
    assert len(combined({"a": "1,16|64", "b": "1,16|64"})) == 2
    assert len(combined({"a": "1,16|64", "b": "1,16|128"})) == 4
    assert len(combined({"a": "1,16|64", "b": "16|64,1"})) == 4
    assert len(combined({"a": "1,16|64,16|64"})) == 4


def test_ranges_of_batch_sizes_vary_together() -> None:
    listed = combined({"a": "1..4,3@1,4", "b": "1..4,5@1,4"})
    assert [shapes for shapes, _ in listed] == [{"a": (4, 3), "b": (4, 5)}, {"a": (1, 3), "b": (1, 5)}]
    with pytest.raises(
        InvalidInputError,
        match=r"range of batch sizes is 1\.\.4@1,4 in input 'a', but 1\.\.4@2,4 in input 'b'",
    ) as raised:
        combined({"a": "1..4,3@1,4", "b": "1..4,5@2,4"})
    assert raised.value.code == "bad-shape"


def test_one_name_with_two_lists_of_sizes_is_refused() -> None:
    for other in ("1,16|32", "1,16"):
        wanted = f"dimension 'length' is 16|64 in input 'a', but {other[2:]} in input 'b'; it must be the same in both"
        with pytest.raises(InvalidInputError, match=re.escape(wanted)) as raised:
            combined({"a": "1,16|64", "b": other}, {"a": ["", "length"], "b": ["", "length"]})
        assert raised.value.code == "bad-shape"


def test_more_than_64_combinations_are_refused() -> None:
    assert len(combined({"x": "1|2|3|4,1|2|3|4,1|2|3|4"})) == 64
    for shapes in ({"x": "1|2|3|4|5,1|2|3|4,1|2|3|4"}, {"x": "|".join(map(str, range(1, 66)))}):
        with pytest.raises(InvalidInputError, match="at most 64") as raised:
            combined(shapes)
        assert raised.value.code == "too-many-shapes"
    with pytest.raises(InvalidInputError, match="combinations"):  # long before they are listed
        combined({"x": ",".join(["|".join(map(str, range(1, 60)))] * 8)})


def test_shapes_are_stored_as_sizes_or_as_canonical_text() -> None:
    assert stored_shape((1, 3), name="x") == [1, 3]
    assert stored_shape([1, "160|320"], name="x") == "1,160|320"
    assert stored_shape(" 1..8 ,3@8,1", name="x") == "1..8,3@1,8"
    assert read_shape_lines(["x=1,3", "y:0=1|2"]) == {"x": [1, 3], "y:0": "1|2"}


@pytest.mark.parametrize("shape", [(1, 0), (1, -3), (1, 1.5), (True,), (1 << 31,), (None,)])
def test_sizes_that_are_none_are_refused(shape: Any) -> None:
    with pytest.raises(InvalidInputError, match="positive whole numbers") as raised:
        stored_shape(shape, name="x")
    assert raised.value.code == "bad-shape"


def test_lines_that_are_none_are_refused() -> None:
    for lines, words in (
        (["x"], "name"),
        (["=1"], "name"),
        (["x=1", "x=2"], "two shapes"),
        (["x=1,3..4"], "at character 3"),
    ):
        with pytest.raises(InvalidInputError, match=words) as raised:
            read_shape_lines(lines)
        assert raised.value.code == "bad-shape"


def test_the_least_batch_is_the_ranges_lower_end() -> None:
    assert least_batch([shape_choices("2..8,3", name="x")]) == 2
    assert least_batch([shape_choices("4|8,3", name="x")]) == 1
