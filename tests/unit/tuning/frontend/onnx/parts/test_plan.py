"""Which nodes ONNX Runtime runs, in which parts, and the models of both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx.shape_inference
import pytest
from hybrid_models import between_products, detector, model_of, node, nothing_to_tune, value, weights

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.parts.cut import cut
from tunefarm_tuning.frontend.onnx.parts.plan import DEPENDS, Survey, plan_parts
from tunefarm_tuning.frontend.onnx.sanitize import PART_OPERATOR
from tunefarm_tuning.workload.runtime_part import NotCompiled, RuntimePart, runtime_warning

FLOAT = onnx.TensorProto.FLOAT


def survey_of(model: onnx.ModelProto, *positions: int) -> Survey:
    """A survey by ONNX's own inference, in which these nodes cannot be compiled."""
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    values = [*graph.input, *graph.value_info, *graph.output]
    reasons = {
        p: NotCompiled(operator=model.graph.node[p].op_type, node=f"number {p}", reason="cannot be compiled")
        for p in positions
    }
    return Survey(reasons=reasons, types={value.name: value.type for value in values})


def run_cut(model: onnx.ModelProto, parts: tuple[RuntimePart, ...], inputs: dict[str, Any]) -> list[Any]:
    """Run both sides of a cut by ONNX's reference: the graph that is compiled, and its parts where it calls them."""
    halves = cut(model, parts)
    values: dict[str, Any] = dict(inputs)
    compiled = halves.compiled.graph
    values |= {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in compiled.initializer}
    for step in compiled.node:
        if step.op_type == PART_OPERATOR:
            number = next(attribute.i for attribute in step.attribute if attribute.name == "number")
            part = onnx.load_model_from_string(halves.parts[number])
            onnx.checker.check_model(part)
            names = [value.name for value in part.graph.input]
            feeds = dict(zip(names, [values[name] for name in step.input], strict=True))
            results = onnx.reference.ReferenceEvaluator(part).run(None, feeds)
        else:
            single = model_of([step], [], [], {})
            single.graph.input.extend(onnx.ValueInfoProto(name=name) for name in step.input if name)
            single.graph.output.extend(onnx.ValueInfoProto(name=name) for name in step.output)
            results = onnx.reference.ReferenceEvaluator(single).run(
                None, {n: values[n] for n in step.input if n}
            )
        values |= dict(zip(step.output, results, strict=True))
    return [values[output.name] for output in compiled.output]


@pytest.mark.parametrize(
    ("network", "positions", "nodes"),
    [(detector, (8, 9, 10, 11), [(8, 9, 10, 11)]), (between_products, (1, 2), [(1, 2)])],
)
def test_both_sides_compute_what_the_whole_does(
    network: Callable[[], onnx.ModelProto], positions: tuple[int, ...], nodes: list[tuple[int, ...]]
) -> None:
    model = network()
    before = model.SerializeToString()
    parts = plan_parts(model, survey_of(model, *positions))
    assert [part.nodes for part in parts] == nodes
    inputs = {
        v.name: np.random.default_rng(1).standard_normal(
            [d.dim_value for d in v.type.tensor_type.shape.dim], "f4"
        )
        for v in model.graph.input
    }
    whole = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
    for ours, expected in zip(run_cut(model, parts, inputs), whole, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
    assert model.SerializeToString() == before
    assert parts == tuple(RuntimePart.from_json(part.to_json()) for part in parts)


def test_a_detectors_part_says_what_crosses_and_why() -> None:
    model = detector()
    survey = survey_of(model, 8)
    reasons = {
        **survey.reasons,
        **{p: NotCompiled(operator="Gather", node=f"number {p}", reason=DEPENDS) for p in (9, 10, 11)},
    }
    (part,) = plan_parts(model, Survey(reasons=reasons, types=survey.types))
    assert [(spec.name, spec.shape) for spec in part.inputs] == [
        ("boxes", (1, 64, 4)),
        ("scores", (1, 3, 64)),
    ]
    assert [(spec.name, spec.shape) for spec in part.outputs] == [
        ("selected", (None, 3)),
        ("kept", (1, None, 4)),
    ]
    assert part.operators == (("Gather", 2), ("NonMaxSuppression", 1), ("Squeeze", 1))
    assert [reason.operator for reason in part.reasons] == ["NonMaxSuppression"]
    assert "ONNX Runtime runs 4 of the network's nodes" in runtime_warning([part])
    assert runtime_warning([]) == ""


def chain(*operators: str) -> onnx.ModelProto:
    """A chain of operators on a 4 x 4 tensor; MatMul has a weight."""
    names = ["x", *(f"t{n}" for n in range(len(operators)))]
    nodes = [
        node(operator, [names[n], "w"] if operator == "MatMul" else [names[n]], [names[n + 1]])
        for n, operator in enumerate(operators)
    ]
    return model_of(
        nodes, [value("x", FLOAT, [4, 4])], [value(names[-1], FLOAT, [4, 4])], {"w": weights(4, 4)}
    )


def test_what_lies_between_two_parts_is_compiled_only_if_it_can_be_tuned() -> None:
    light = chain("MatMul", "Erf", "Relu", "Erf")
    assert [part.nodes for part in plan_parts(light, survey_of(light, 1, 3))] == [(1, 2, 3)]
    heavy = chain("MatMul", "Erf", "MatMul", "Erf")
    parts = plan_parts(heavy, survey_of(heavy, 1, 3))
    assert [part.nodes for part in parts] == [(1,), (3,)]
    inputs = {"x": np.eye(4, dtype="f4")}
    expected = onnx.reference.ReferenceEvaluator(heavy).run(None, inputs)
    np.testing.assert_allclose(run_cut(heavy, parts, inputs)[0], expected[0], rtol=1e-5)


def test_a_network_without_kernels_has_no_parts() -> None:
    model = nothing_to_tune()
    assert plan_parts(model, survey_of(model, 0)) == ()


def test_a_plan_holds_for_its_own_model_alone() -> None:
    model = detector()
    parts = plan_parts(model, survey_of(model, 8, 9, 10, 11))
    with pytest.raises(InvalidModelError) as caught:
        cut(between_products(), parts)
    assert caught.value.code == "other-model"
