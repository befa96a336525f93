"""Types inferred without large weights are those inferred with them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_models
import pytest
from onnx import shape_inference

from tunefarm_tuning.frontend.onnx.reference import inferred_types
from tunefarm_tuning.frontend.onnx.reference.inferred_types import with_inferred_types


def types(model: onnx.ModelProto) -> dict[str, bytes]:
    return {value.name: value.type.SerializeToString() for value in model.graph.value_info}


@pytest.mark.parametrize("name", sorted(onnx_models.ORDINARY))
def test_an_ordinary_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inferred_types, "_LARGE_BYTES", 64)  # the scales of a resize are none
    model = onnx_models.ORDINARY[name]()
    expected = shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
    given = onnx.ModelProto.FromString(model.SerializeToString())
    inferred = with_inferred_types(given, data_prop=True)
    assert types(inferred) == types(expected)
    assert [value.name for value in inferred.graph.input] == [value.name for value in model.graph.input]
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    assert {tensor.name: tensor for tensor in inferred.graph.initializer} == weights


def test_large_weights_do_not_pass_through_the_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    g = onnx_models.GraphBuilder()
    x = g.input("x", [1, 64])
    g.node("MatMul", x, g.constant(np.ones((64, 512), np.float32)), out="y")
    g.output("y", [1, 512])
    sizes: list[int] = []
    infer = shape_inference.infer_shapes

    def noted(model: onnx.ModelProto, **options: bool) -> onnx.ModelProto:
        sizes.append(model.ByteSize())
        return infer(model, **options)

    monkeypatch.setattr(shape_inference, "infer_shapes", noted)
    inferred = with_inferred_types(g.model())
    assert max(sizes) < 4096
    assert inferred.graph.initializer[0].ByteSize() > 64 * 512 * 4
