"""Control flow is resolved: the flat network computes what the file's does, in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from flat_networks import flat, operators, parsed, run

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.frontend.onnx.control_flow.flat_graph import MAX_NODES
from tunefarm_tuning.frontend.onnx.control_flow.loops import MAX_STEPS
from tunefarm_tuning.workload.binding import Binding

X = np.array([[1.0, -2.0, 3.0]], np.float32)


def refused(model: onnx.ModelProto, code: str, **values: Any) -> InvalidModelError:
    shapes = {"x": X.shape} if any(value.name == "x" for value in model.graph.input) else {}
    with pytest.raises(InvalidModelError) as caught:
        bind_model(model, Binding.of(shapes, values))
    assert caught.value.code == code, caught.value.message
    return caught.value


RATE = """
net (float[n, 3] x, int64 sr) => (float[n, 3] y) <int64 fast = {16000}> {
  is_fast = Equal(sr, fast)
  y = If(is_fast) <
    then_branch = fast_branch () => (float[n, 3] out) <float[1] two = {2}> { out = Mul(x, two) },
    else_branch = slow_branch () => (float[n, 3] out) <float[1] two = {5}> { doubled = Mul(x, two)  out = Neg(doubled) }
  >
}"""


@pytest.mark.parametrize(("rate", "wanted"), [(16000, ["Mul"]), (8000, ["Mul", "Neg"])])
def test_a_bound_value_takes_its_branch(rate: int, wanted: list[str]) -> None:
    model = flat(parsed(RATE), {"x": X, "sr": np.array(rate)}, sr=rate)
    assert [operator for operator in operators(model) if operator != "Identity"] == wanted
    assert [value.name for value in model.graph.input] == ["x"]


@pytest.mark.parametrize("rate", [16000, 8000])
def test_both_branches_are_computed_if_the_run_decides(rate: int) -> None:
    model = flat(parsed(RATE), {"x": X, "sr": np.array(rate)})
    assert operators(model).count("Where") == 1
    assert operators(model).count("Mul") == 2


def test_shapes_decide_and_nested_branches_are_resolved() -> None:
    graph = """
    net (float[n, m] x) => (float[n, m] y, float[n, m] z) <int64 two = {2}, int64 zero = {0}> {
      shape = Shape(x)  rank = Size(shape)  is_matrix = Equal(rank, two)
      y, z = If(is_matrix) <
        then_branch = matrix () => (float[n, m] a, float[n, m] b) {
          first = Gather(shape, zero)  is_two = Equal(first, two)
          a = If(is_two) <then_branch = t () => (float[n, m] c) { c = Abs(x) }, else_branch = e () => (float[n, m] c) { c = Relu(x) }>
          b = Identity(x)
        },
        else_branch = other () => (float[n, m] a, float[n, m] b) { a = Sqrt(x)  b = Sqrt(x) }
      >
    }"""
    assert "Relu" in operators(flat(parsed(graph), {"x": X}))
    assert "Abs" in operators(flat(parsed(graph), {"x": np.concatenate([X, X])}))


def test_a_condition_of_one_element_and_outputs_of_rank_zero_are_selected() -> None:
    graph = """
    net (float[1] x, bool[1] on) => (float y, bool z) <int64[0] none = {}> {
      y, z = If(on) <
        then_branch = t () => (float a, bool b) { r = Reshape(x, none)  a = Neg(r)  b = IsNaN(a) },
        else_branch = e () => (float a, bool b) { a = Reshape(x, none)  c = IsNaN(a)  b = Not(c) }
      >
    }"""
    for on in (True, False):
        flat(parsed(graph), {"x": X[0, :1], "on": np.array([on])})


def test_equal_names_in_the_branches_stay_apart() -> None:
    branch = "{{ inner = Mul(x, x)  out = {} (inner) }}"
    graph = f"""
    net (float[n, 3] x, bool on) => (float[n, 3] y) {{
      a = If(on) <then_branch = t () => (float[n, 3] out) {branch.format("Neg")}, else_branch = e () => (float[n, 3] out) {branch.format("Abs")}>
      b = If(on) <then_branch = t () => (float[n, 3] out) {branch.format("Exp")}, else_branch = e () => (float[n, 3] out) {branch.format("Neg")}>
      y = Add(a, b)
    }}"""
    flat(parsed(graph), {"x": X, "on": np.array(True)})
    flat(parsed(graph), {"x": X, "on": np.array(True)}, on=True)
    flat(parsed(graph), {"x": X, "on": np.array(False)}, on=False)


LOOP = """
net (float[n, 3] x, int64 count) => (float[n, 3] last, float[k, n, 3] rows) <bool go = {1}> {
  last, rows = Loop(count, go, x) <body = step (int64 i, bool cond, float[n, 3] value) => (bool still, float[n, 3] next, float[n, 3] row) {
    number = Cast <to = 1> (i)
    next = Add(value, number)
    row = Neg(next)
    still = Identity(cond)
  }>
}"""


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("steps", [1, 4])
def test_a_loop_of_known_length_is_unrolled(steps: int, opset: int) -> None:
    model = flat(parsed(LOOP, opset), {"x": X, "count": np.array(steps)}, count=steps)
    assert operators(model).count("Add") == steps


def test_a_loop_ends_when_its_condition_is_known_to_be_false() -> None:
    graph = """
    net (float[n, 3] x) => (float[n, 3] y) <bool go = {1}, int64 three = {3}> {
      y = Loop(, go, x) <body = step (int64 i, bool cond, float[n, 3] value) => (bool still, float[n, 3] next) {
        next = Add(value, value)
        still = Less(i, three)
      }>
    }"""
    assert operators(flat(parsed(graph), {"x": X})).count("Add") == 4


def test_a_step_number_that_the_body_declares_as_a_vector_is_one() -> None:
    graph = """
    net (float[3, 3] x) => (float[3, 1, 3] rows) <int64 count = {3}, bool go = {1}, int64[1] one = {1}> {
      rows = Loop(count, go) <body = step (int64[1] i, bool cond) => (bool still, float[1, 3] row) {
        still = Identity(cond)  next = Add(i, one)  row = Slice(x, i, next)
      }>
    }"""
    flat(parsed(graph), {"x": np.arange(9, dtype=np.float32).reshape(3, 3)})


def test_a_condition_behind_a_constant_that_is_cast_like_another_is_known() -> None:
    graph = """
    net (float[n, 3] x) => (float[n, 3] y) <int64[1] zero = {0}, float one = {1}> {
      like = CastLike(one, zero)
      go = Greater(like, zero)
      y = If(go) <
        then_branch = narrow () => (float[n, k] out) <int64[1] end = {3}, int64[1] axis = {1}> { out = Slice(x, zero, end, axis) },
        else_branch = wide () => (float[n, k] out) { out = Concat <axis = 1> (x, x) }
      >
    }"""
    assert operators(flat(parsed(graph), {"x": X})) == ["Identity", "Slice"]


def test_a_loop_in_a_branch_in_a_loop_is_unrolled() -> None:
    graph = """
    net (float[n, 3] x) => (float[n, 3] y) <bool go = {1}, int64 two = {2}, int64 one = {1}> {
      y = Loop(two, go, x) <body = step (int64 i, bool cond, float[n, 3] value) => (bool still, float[n, 3] next) {
        is_first = Less(i, one)
        next = If(is_first) <
          then_branch = t () => (float[n, 3] out) {
            out = Loop(two, go, value) <body = inner (int64 k, bool c, float[n, 3] v) => (bool s, float[n, 3] w) {
              s = Identity(c)  w = Mul(v, x)
            }>
          },
          else_branch = e () => (float[n, 3] out) { out = Neg(value) }
        >
        still = Identity(cond)
      }>
    }"""
    model = flat(parsed(graph), {"x": X})
    assert (operators(model).count("Mul"), operators(model).count("Neg")) == (2, 1)


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "scan_input_axes = [0, 0], scan_input_directions = [1, 0], ",
        "scan_output_directions = [1], ",
        "scan_output_axes = [1], ",
    ],
)
def test_a_scan_is_unrolled(attributes: str) -> None:
    graph = f"""
    net (float[steps, 3] x, float[steps, 3] other, float[3] start) => (float[3] last, float[p, q] rows) {{
      last, rows = Scan <num_scan_inputs = 2, {attributes} body = step (float[3] sum, float[3] row, float[3] second)
          => (float[3] next, float[3] out) {{
        product = Mul(row, second)  next = Add(sum, product)  out = Neg(next)
      }}> (start, x, other)
    }}"""
    feeds = {
        "x": np.arange(12, dtype=np.float32).reshape(4, 3),
        "other": np.ones([4, 3], np.float32),
        "start": X[0],
    }
    model = flat(parsed(graph), feeds)
    assert operators(model).count("Mul") == 4


def test_what_nothing_needs_is_left_out() -> None:
    model = parsed(RATE)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "unused"))
    bound = flat(model, {"x": X, "sr": np.array(16000)}, sr=16000)
    assert [onnx.numpy_helper.to_array(tensor).tolist() for tensor in bound.graph.initializer] == [[2.0]]


def test_branches_of_different_shapes_are_refused_with_the_value_to_bind() -> None:
    graph = RATE.replace("out = Neg(doubled)", "out = Concat <axis = 0> (doubled, doubled)")
    error = refused(parsed(graph), "unequal-branches")
    assert (
        "result 0 of If (node 'y') is float [1, 3] in one branch and float [2, 3] in the other"
        in error.message
    )
    assert "--value sr=16000" in error.message
    other = (
        RATE.replace("out = Neg(doubled)", "out = Cast <to = 11> (doubled)")
        .replace("(float[n, 3] out) <float[1] two = {5}>", "(double[n, 3] out) <float[1] two = {5}>")
        .replace("=> (float[n, 3] y)", "=> (y)")
    )
    assert (
        "double"
        in refused(
            onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{other}'), "unequal-branches"
        ).message
    )


def test_a_branch_that_may_fail_unless_it_is_taken_is_refused() -> None:
    graph = """
    net (float[n, 3] x, int64[1, 1] i, bool on) => (float[1, 3] y) {
      y = If(on) <then_branch = t () => (float[1, 3] out) { far = Add(i, i)  out = GatherND(x, far) }, else_branch = e () => (float[1, 3] out) { out = Identity(x) }>
    }"""
    error = refused(parsed(graph), "unsupported-operator")
    assert "GatherND (node 'out/1') may fail with the inputs of the other branch" in error.message
    assert "--value on=true" in error.message
    flat(parsed(graph), {"x": X, "i": np.array([[0]]), "on": np.array(True)}, on=True)


@pytest.mark.parametrize("operator", ["Div", "Mod"])
@pytest.mark.parametrize("divisors", [[2, -3, 7], [2, 0, 7]])
def test_divisors_of_a_branch_that_is_not_taken_may_be_zero(operator: str, divisors: list[int]) -> None:
    graph = f"""
    net (int64[n, 3] x, bool on) => (int64[n, 3] y) <int64[1, 3] seven = {{7, 8, 9}}> {{
      y = If(on) <then_branch = t () => (int64[n, 3] out) {{ out = {operator}(seven, x) }}, else_branch = e () => (int64[n, 3] out) {{ out = Identity(x) }}>
    }}"""
    flat(parsed(graph), {"x": np.array([divisors]), "on": np.array(0 not in divisors)})


QUOTIENT = """
net (TYPE[1, 2] x, TYPE[1, 2] d, bool on) => (TYPE[1, 2] y) {
  y = If(on) <then_branch = t () => (TYPE[1, 2] out) { out = Div(x, d) }, else_branch = e () => (TYPE[1, 2] out) { out = Identity(x) }>
}"""


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("is_taken", [True, False])
def test_a_quotient_that_overflows_is_not_computed(dtype: str, is_taken: bool) -> None:
    """A CPU ends the process that divides the smallest number by -1."""
    smallest = np.iinfo(dtype).min
    dividends, divisors = ([7, smallest + 1], [-1, -1]) if is_taken else ([smallest, 5], [-1, 0])
    feeds = {"x": np.array([dividends], dtype), "d": np.array([divisors], dtype), "on": np.array(is_taken)}
    flat(parsed(QUOTIENT.replace("TYPE", dtype)), feeds)


def test_divisors_that_cannot_be_selected_are_refused_with_the_value_to_bind() -> None:
    with pytest.raises(InvalidModelError, match="--value on=true") as caught:
        bind_model(parsed(QUOTIENT.replace("TYPE", "uint64")), Binding.of({}, {}))
    assert caught.value.code == "unsupported-operator"


@pytest.mark.parametrize("operator", ["Gather", "GatherElements"])
@pytest.mark.parametrize(("index", "is_taken"), [(-2, True), (1, True), (-3, False), (2, False)])
def test_indices_of_a_branch_that_is_not_taken_may_be_out_of_range(
    operator: str, index: int, is_taken: bool
) -> None:
    graph = f"""
    net (float[1, 4] x, int64[1, 2] i, bool on) => (float y) {{
      y = If(on) <
        then_branch = t () => (float out) {{ twice = Add(i, i)  all = {operator} <axis = 1> (x, twice)  out = ReduceSum <keepdims = 0> (all) }},
        else_branch = e () => (float out) {{ out = ReduceSum <keepdims = 0> (x) }}
      >
    }}"""
    x = np.array([[1.0, 2.0, 4.0, 8.0]], np.float32)
    flat(parsed(graph), {"x": x, "i": np.array([[index, 0]]), "on": np.array(is_taken)})


def test_a_loop_of_unknown_length_is_refused_with_the_value_to_bind() -> None:
    error = refused(parsed(LOOP), "unknown-loop")
    assert "the number of steps of Loop (node 'last') is known at run time only" in error.message
    assert "--value count=1 (the artifact then always makes that many steps)" in error.message


def test_a_loop_that_is_too_long_is_refused() -> None:
    assert "20000" in refused(parsed(LOOP), "too-large", count=MAX_NODES).message
    endless = """
    net (float[n, 3] x) => (float[n, 3] y) <bool go = {1}> {
      y = Loop(, go, x) <body = step (int64 i, bool cond, float[n, 3] value) => (bool still, float[n, 3] next) {
        next = Add(value, value)  still = Identity(cond)
      }>
    }"""
    assert "Loop (node 'y') never ends" in refused(parsed(endless), "too-many-steps").message
    ends = endless.replace("Identity(cond)", "Constant<value = bool {0}>()")
    flat(parsed(ends), {"x": X})


@pytest.mark.parametrize("still", ["Identity(cond)", "Cast<to = 9>(cond)", "Constant<value = bool {1}>()"])
@pytest.mark.parametrize("go", ["", "go"])
def test_a_loop_that_counts_too_far_is_refused_at_once_even_if_it_could_be_kept(go: str, still: str) -> None:
    def network(steps: int, still: str = still) -> onnx.ModelProto:
        return parsed(f"""
        net (float[n, 3] x) => (float[n, 3] y) <bool go = {{1}}, int64 many = {{{steps}}}> {{
          y = Loop(many, {go}, x) <body = step (int64 i, bool cond, float[n, 3] value) => (bool still, float[n, 3] next) {{
            next = Neg(value)  still = {still}
          }}>
        }}""")

    with pytest.raises(
        InvalidModelError, match=r"Loop \(node 'y'\) takes 1000000000 steps; the limit of steps is 1000000"
    ) as caught:
        bind_model(network(10**9), Binding.of({"x": X.shape}, {}), keep_unresolved=True)
    assert caught.value.code == "too-many-steps"
    assert caught.value.fields["steps"] == 10**9
    kept = bind_model(network(MAX_STEPS), Binding.of({"x": X.shape}, {}), keep_unresolved=True)
    assert kept.unresolved is not None
    assert kept.unresolved.code == "too-large"
    flat(network(-1), {"x": X})  # no step


def test_a_loop_that_its_values_end_may_have_any_limit() -> None:
    """As exporters write `while`: the number of steps is the largest there is."""
    graph = f"""
    net (float[n, 3] x) => (float[n, 3] y) <bool go = {{1}}, int64 many = {{{2**63 - 1}}}, float end = {{9}}> {{
      y = Loop(many, go, x) <body = step (int64 i, bool cond, float[n, 3] value) => (bool still, float[n, 3] next) {{
        next = Add(value, value)  sum = ReduceSum<keepdims = 0>(next)  still = Less(sum, end)
      }}>
    }}"""
    network = bind_model(parsed(graph), Binding.of({"x": X.shape}, {}), keep_unresolved=True)
    assert network.unresolved is not None
    assert network.unresolved.code == "unknown-loop"


def test_a_loop_without_steps_that_makes_rows_is_refused() -> None:
    assert "takes no step" in refused(parsed(LOOP), "zero-size", count=0).message


@pytest.mark.parametrize("steps", [5, MAX_NODES + 1])
def test_what_cannot_be_resolved_can_be_kept(steps: int) -> None:
    """The number of steps is an input, or too large; a node before the loop and one behind it are there as well."""
    graph = f"""
    net (float[1, 3] x, int64 count) => (float[1, 3] y) <int64 many = {{{steps}}}> {{
      a = Neg(x)
      b = Loop({"count" if steps == 5 else "many"}, , a) <body = step (int64 i, bool cond, float[1, 3] value)
        => (bool still, float[1, 3] next) {{ next = Sub(value, x)  still = Identity(cond) }}>
      y = Neg(b)
    }}"""
    model = parsed(graph)
    file = onnx.ModelProto()
    file.CopyFrom(model)
    network = bind_model(model, Binding.of({"x": X.shape, "count": ()}, {}), keep_unresolved=True)
    code = "unknown-loop" if steps == 5 else "too-large"
    assert getattr(network.unresolved, "code", None) == code
    assert operators(network.model).count("Loop") == 1
    assert len(network.model.graph.node) == 3
    results = (run(each, {"x": X, "count": np.array(5)})[0] for each in (network.model, file))
    np.testing.assert_array_equal(*results)


def test_the_copies_of_a_loops_named_nodes_have_names_of_their_own() -> None:
    def names() -> list[str]:
        model = parsed(LOOP)
        for number, node in enumerate(model.graph.node[0].attribute[0].g.node):
            node.name = ("", "step", "step/1", "")[number]  # the copies' names are taken
        return [
            node.name for node in flat(model, {"x": X, "count": np.array(3)}, count=3).graph.node if node.name
        ]

    assert {"step", "step/1"} <= set(names())
    assert len(names()) == len(set(names())), names()
    assert names() == names()
