"""Constant indices that are out of range, and the nodes of a network that TVM computes at its import."""

from __future__ import annotations

import onnx
import pytest

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.frontend.onnx.constant_indices import nodes_computed_at_import, refuse_bad_indices
from tunefarm_tuning.workload.binding import Binding


def parsed(text: str) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\nnet {text}')
    return model


@pytest.mark.parametrize(
    ("body", "node", "index", "extent"),
    [
        ("(float[4, 2] x) => (float[1, 2] y) <int64[1] i = {4}> { y = Gather(x, i) }", "y", 4, 4),
        ("(float[4, 2] x) => (float[1, 2] y) <int64[1] i = {-5}> { y = Gather(x, i) }", "y", -5, 4),
        ("(float[4, 2] x) => (float[4, 1] y) <int64[1] i = {2}> { y = Gather<axis = 1>(x, i) }", "y", 2, 2),
        ("(float[4, 2] x) => (float[4, 1] y) <int64[1] i = {2}> { y = Gather<axis = -1>(x, i) }", "y", 2, 2),
        (
            "(float[4, 2] x) => (float[1, 2] y) { i = Constant<value = int64[1] {9}>() y = Gather(x, i) }",
            "y",
            9,
            4,
        ),
        (
            "(float[4] x) => (float[2] y) <int64[2] i = {0, 7}> { y = GatherElements(x, i) }",
            *("y", 7, 4),
        ),
        ("(float[4, 2] x) => (float[1] y) <int64[1, 2] i = {3, 2}> { y = GatherND(x, i) }", "y", 2, 2),
        (
            "(float[3, 4] x) => (float[3] y) <int64[3, 1] i = {0, 1, 4}> { y = GatherND<batch_dims = 1>(x, i) }",
            *("y", 4, 4),
        ),
        (
            "(float[1] u, float[4] x) => (float[4] y) <int64[1, 1] i = {134217728}> { y = ScatterND(x, i, u) }",
            *("y", 134217728, 4),
        ),
        (
            "(float[1] u) => (float[2] y) <float[2] d = {1, 2}, int64[1] i = {-3}> { y = ScatterElements(d, i, u) }",
            *("y", -3, 2),
        ),
    ],
)
def test_a_bad_index_is_named_with_its_node_and_the_extent(
    body: str, node: str, index: int, extent: int
) -> None:
    with pytest.raises(InvalidModelError) as caught:
        refuse_bad_indices(parsed(body).graph)
    error = caught.value
    assert (error.code, error.fields["node"], error.fields["index"]) == ("index-out-of-range", node, index)
    assert error.fields["extent"] == extent
    assert f"'{node}'" in error.message
    assert str(index) in error.message


@pytest.mark.parametrize(
    "body",
    [
        "(float[4, 2] x) => (float[2, 2] y) <int64[2] i = {-4, 3}> { y = Gather(x, i) }",
        "(float[4, 2] x) => (float[1] y) <int64[1, 2] i = {3, 1}> { y = GatherND(x, i) }",
        "(float[4, 2] x) => (float[0, 2] y) <int64[0] i = {}> { y = Gather(x, i) }",
        "(float[4, 2] x) => (float[1, 2] y) <int64[1] i = {4}> { a = Neg(x) y = Gather(a, i) }",
        "(float[4, 2] x, int64[1] i) => (float[1, 2] y) { y = Gather(x, i) }",
        "(float[4, 2] x) => (float[1, 2] y) <int64[1] i = {1}> { y = Gather<axis = 7>(x, i) }",
    ],
)
def test_what_is_right_or_unknown_here_passes(body: str) -> None:
    refuse_bad_indices(parsed(body).graph)


def constants_of(text: str) -> set[str]:
    model = nodes_computed_at_import(bind_model(parsed(text), Binding()))
    return set() if model is None else {node.output[0] for node in model.graph.node}


def test_what_needs_no_values_is_constant() -> None:
    head = "(float[4, 2] x, int64[1] n) => (float[4, 2] y) <float[2] d = {1, 2}, int64[1] i = {0}>"
    assert constants_of(f"{head} {{ a = Neg(d) b = Gather(a, i) c = Gather(a, n) y = Add(x, c) }}") == {
        "a",
        "b",
    }
    assert constants_of(f"{head} {{ y = Add(x, d) }}") == set()


def test_shapes_of_inputs_are_constants_and_those_inside_are_not() -> None:
    head = "(float[4, 2] x) => (float[4, 2] y) <float[2] d = {1, 2}, float[1] u = {1}>"
    assert constants_of(f"{head} {{ s = Shape(x) t = ScatterElements(d, s, d) y = Add(x, t) }}") == {"s", "t"}
    inside = f"{head} {{ a = Neg(x) s = Shape(a) t = Gather(d, s) y = Add(x, t) }}"
    assert constants_of(inside) == set()


def test_a_write_by_the_shapes_of_tensors_inside_is_refused() -> None:
    head = "(float[4, 2] x) => (float[4, 2] y) <float[2] d = {1, 2}>"
    with pytest.raises(InvalidModelError, match="follow from the network's shapes") as caught:
        constants_of(f"{head} {{ a = Neg(x) s = Shape(a) t = ScatterElements(d, s, d) y = Add(x, t) }}")
    assert (caught.value.code, caught.value.fields["node"]) == ("cannot-run", "t")


def test_constant_nodes_end_in_what_none_of_them_reads() -> None:
    head = "(float[2] x) => (float[2] y) <float[2] d = {1, 2}, int64[2] i = {0, 1}>"
    model = nodes_computed_at_import(
        bind_model(parsed(f"{head} {{ a = Neg(d) b = Gather(a, i) y = Add(x, b) }}"), Binding())
    )
    assert model is not None
    assert [value.name for value in model.graph.output] == ["b"]
