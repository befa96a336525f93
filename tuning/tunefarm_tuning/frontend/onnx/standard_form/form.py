"""A file's model as everything after the first checks reads it: plain nodes in order, without what ONNX Runtime or an artifact cannot have."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tunefarm_tuning.frontend.onnx.standard_form.local_functions import inline_functions
from tunefarm_tuning.frontend.onnx.standard_form.node_order import put_in_order
from tunefarm_tuning.frontend.onnx.standard_form.qonnx import expand_quantisers

_ML = "ai.onnx.ml"


def in_standard_form(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without functions of its own, with its nodes in order; the model may be changed.

    Maps of classes to scores, which scikit-learn's converters return, become tensors of scores; the quantisers of QONNX, which ONNX
    Runtime does not know, become nodes of ONNX.

    Raises:
        InvalidModelError: As `inline_functions`.
    """
    model = put_in_order(inline_functions(model))
    _return_scores(model.graph)
    expand_quantisers(model)
    return model


def _return_scores(graph: onnx.GraphProto) -> None:
    """Return the scores in place of each output that is a sequence of maps of them: a row for each map, in the order of the labels."""
    outputs = {value.name: value for value in graph.output}
    for node in graph.node:
        if (node.domain, node.op_type) != (_ML, "ZipMap") or node.output[0] not in outputs:
            continue
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        value = outputs[node.output[0]]
        value.type.Clear()
        value.type.tensor_type.elem_type = TensorProto.FLOAT
