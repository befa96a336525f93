"""Shapes of inputs: what a user gives, and what the file names."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.binding import bind_inputs, open_shapes, several_sizes

GRAPH = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, 3, h] x, float[n, c, h] state, float[n, h] mask) => (float[a] y) { y = Identity(x) }""").graph


def shapes(**given: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [spec.shape for spec in bind_inputs(GRAPH, given)]


def test_a_name_that_is_bound_in_one_input_is_bound_in_all() -> None:
    assert shapes(x=(1, 3, 64), state=(1, 16, 64)) == [(1, 3, 64), (1, 16, 64), (1, 64)]


def test_a_name_may_have_several_sizes_which_say_nothing_of_other_inputs() -> None:
    """Exporters name the dimensions of a state like those of the image, though it is smaller; ONNX Runtime does not mind."""
    assert shapes(x=(1, 3, 64), state=(1, 16, 32), mask=(1, 8)) == [(1, 3, 64), (1, 16, 32), (1, 8)]
    with pytest.raises(
        InvalidModelError, match=r"dimension 1 \('h'\) of input 'mask' is not fixed"
    ) as caught:
        shapes(x=(1, 3, 64), state=(1, 16, 32))
    assert caught.value.code == "unknown-dimension"


def test_open_dimensions_of_one_name_are_one_unless_the_shapes_tell_otherwise() -> None:
    def names(**given: tuple[int, ...]) -> list[list[str]]:
        return [[str(getattr(size, "name", size)) for size in shape] for shape in open_shapes(GRAPH, given)]

    assert names(x=(1, 3, 64)) == [["n", "3", "h"], ["n", "c", "h"], ["n", "h"]]
    apart = [["n", "3", "x[2]"], ["n", "c", "state[2]"], ["n", "mask[1]"]]
    assert names(x=(1, 3, 64), state=(1, 16, 32)) == apart


def test_a_name_with_several_sizes_is_told() -> None:
    assert several_sizes(GRAPH, {"x": (1, 3, 64), "state": (1, 16, 64)}) == ""
    text = "dimension 'h' is 64 in input 'x' and 32 in input 'state'"
    assert several_sizes(GRAPH, {"x": (1, 3, 64), "state": (1, 16, 32)}) == text
