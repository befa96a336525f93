"""Which inputs a network is compared on."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import GraphBuilder

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.reference.runtime import open_session
from tunefarm_tuning.frontend.onnx.reference.telling_inputs import run_on_drawn
from tunefarm_tuning.reference.random_inputs import InputKind
from tunefarm_tuning.workload.task import TensorSpec


def float_spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype="float32")


def between_bounds(*, scale: float) -> onnx.ModelProto:
    """The input's values between two bounds, times a scale; NaN for the others."""
    g = GraphBuilder()
    x, low, high = (
        g.input(name, shape, TensorProto.FLOAT) for name, shape in (("x", [64]), ("low", []), ("high", []))
    )
    y = g.node("Mul", g.node("Abs", x), g.constant(np.array(scale, np.float32)))
    inside = g.node("And", g.node("GreaterOrEqual", y, low), g.node("LessOrEqual", y, high))
    g.output(g.node("Where", inside, y, g.constant(np.array(np.nan, np.float32))))
    return g.model()


@pytest.mark.parametrize("scale", [50.0, 2_000.0])
def test_bounds_are_drawn_so_that_something_is_between_them(scale: float) -> None:
    session = open_session(between_bounds(scale=scale).SerializeToString(), 1, optimised=False)
    specs = [float_spec("x", 64), float_spec("low"), float_spec("high")]
    integers, inputs, (y,) = run_on_drawn(session, specs, 0, InputKind.NORMAL, {})
    assert integers == "random"
    assert np.isfinite(y).mean() > 0.9
    again = run_on_drawn(session, specs, 0, InputKind.NORMAL, {})
    assert all(np.array_equal(a, b) for a, b in zip(inputs, again[1], strict=True))


def test_scalars_that_tell_something_stay_as_they_are_drawn() -> None:
    g = GraphBuilder()
    g.output(g.node("Mul", g.input("x", [64], TensorProto.FLOAT), g.input("scale", [], TensorProto.FLOAT)))
    session = open_session(g.model().SerializeToString(), 1, optimised=False)
    _, (_, scale), _ = run_on_drawn(
        session, [float_spec("x", 64), float_spec("scale")], 0, InputKind.NORMAL, {}
    )
    assert scale not in (0.0, 1.0, 100.0, 10_000.0)


def test_an_index_that_is_out_of_range_is_drawn_again() -> None:
    g = GraphBuilder()
    index = g.input("index", [4], TensorProto.INT64)
    g.output(g.node("Gather", g.input("x", [1], TensorProto.FLOAT), index))
    session = open_session(g.model().SerializeToString(), 1, optimised=False)
    specs = [float_spec("x", 1), TensorSpec(name="index", shape=(4,), dtype="int64")]
    specs.sort(key=lambda spec: [i.name for i in session.get_inputs()].index(spec.name))
    integers, _, _ = run_on_drawn(session, specs, 0, InputKind.NORMAL, {})
    assert integers == "zero"


def test_a_network_that_runs_on_nothing_is_refused() -> None:
    g = GraphBuilder()
    x = g.input("x", [4], TensorProto.INT64)
    g.output(g.node("Reshape", g.weight(7), g.node("Add", x, g.ints(2))))
    session = open_session(g.model().SerializeToString(), 1, optimised=False)
    with pytest.raises(InvalidModelError):
        run_on_drawn(session, [TensorSpec(name="x", shape=(4,), dtype="int64")], 0, InputKind.NORMAL, {})
