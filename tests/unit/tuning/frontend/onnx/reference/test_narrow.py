"""Rounding the factors of products, and the tail that it gives a width."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import GraphBuilder

from tunefarm_tuning.frontend.onnx.binding import bind_inputs
from tunefarm_tuning.frontend.onnx.reference.narrow import with_narrow_factors
from tunefarm_tuning.frontend.onnx.reference.runtime import open_session, run_session
from tunefarm_tuning.frontend.onnx.reference.variants import Variants
from tunefarm_tuning.reference.comparison import BFLOAT16, compare_arrays


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    fraction, exponent = np.frexp(array.astype(np.float64))
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits).astype(np.float32)


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 8), ("float16", 11)])
def test_both_factors_of_a_product_are_rounded(dtype: str, bits: int) -> None:
    rng = np.random.default_rng(0)
    x, weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 32), (32, 8)))
    g = GraphBuilder()
    g.output(g.node("MatMul", g.input("x", [4, 32]), g.constant(weights)))
    model = g.model()
    source = with_narrow_factors(model, bind_inputs(model.graph, {}), dtype)
    assert source is not None
    (output,) = run_session(open_session(source, 1, optimised=False), ["x"], [x])
    np.testing.assert_allclose(output, rounded(x, bits) @ rounded(weights, bits), rtol=1e-5, atol=1e-5)
    assert np.abs(output - x @ weights).max() > 1e-3


def test_a_product_of_two_activations_stays_as_it_is() -> None:
    g = GraphBuilder()
    x = g.input("x", [4, 4])
    g.output(g.node("MatMul", x, x))
    model = g.model()
    assert with_narrow_factors(model, bind_inputs(model.graph, {}), "bfloat16") is None


def test_few_elements_may_be_as_far_as_rounded_factors_move_them() -> None:
    """The difference of two large sums, as the scores of a detector are: a thousandth of what is added up."""
    g = GraphBuilder()
    x = g.input("x", [1, 16, 24, 24])
    shared = np.random.default_rng(1).standard_normal((1, 16, 3, 3)).astype(np.float32)
    left, right = (g.node("Conv", x, g.constant(shared * scale)) for scale in (1.0, 0.97))
    g.output(g.node("Sub", left, right))
    model = g.model()
    specs = bind_inputs(model.graph, {})
    source = model.SerializeToString()
    feeds = [np.random.default_rng(2).standard_normal((1, 16, 24, 24)).astype(np.float32)]
    plain = run_session(open_session(source, 1, optimised=False), ["x"], feeds)
    widths = {}
    for narrow in (None, "bfloat16"):
        variants = Variants(source, model, specs, threads=1, budget_sec=60, narrow=narrow)
        variants.add(feeds, plain, 0.0)
        (expected,) = variants.run()
        (widths[narrow],) = expected.widths
        ways = " ".join(variants.report.ways)
        assert ("rounded to bfloat16" in ways) == (narrow is not None)
    narrow_source = with_narrow_factors(model, specs, "bfloat16")
    assert narrow_source is not None
    (legal,) = run_session(open_session(narrow_source, 1, optimised=False), ["x"], feeds)
    error = np.abs(legal - plain[0])
    far = np.unravel_index(np.argsort(error, axis=None)[-3:], error.shape)
    few = plain[0].copy()
    few[far] = legal[far]
    assert not compare_arrays("y", few, plain[0], rounding=BFLOAT16, width=widths[None]).ok
    assert compare_arrays("y", few, plain[0], rounding=BFLOAT16, width=widths["bfloat16"]).ok
    assert not compare_arrays("y", legal, plain[0], rounding=BFLOAT16, width=widths[None]).ok
    assert compare_arrays("y", legal, plain[0], rounding=BFLOAT16, width=widths["bfloat16"]).ok
    further = plain[0] + 6 * (legal - plain[0])
    assert not compare_arrays("y", further, plain[0], rounding=BFLOAT16, width=widths["bfloat16"]).ok, (
        "in many elements, so large an error is none of rounded factors"
    )
    few[far] = plain[0][far] + 6 * error.max()
    assert not compare_arrays("y", few, plain[0], rounding=BFLOAT16, width=widths["bfloat16"]).ok
