"""A file's model as everything after the first checks reads it: plain nodes in order, without what ONNX Runtime or an artifact cannot have."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.frontend.onnx.standard_form.local_functions import inline_functions
from tunefarm_tuning.frontend.onnx.standard_form.mended_nodes import mend_nodes
from tunefarm_tuning.frontend.onnx.standard_form.node_order import put_in_order
from tunefarm_tuning.frontend.onnx.standard_form.qonnx import expand_quantisers

_ML = "ai.onnx.ml"


def in_standard_form(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without functions of its own, with its nodes in order; the model may be changed.

    Maps of classes to scores, which scikit-learn's converters return, become tensors of scores; the quantisers of QONNX, which ONNX
    Runtime does not know, become nodes of ONNX; nodes that it refuses for their form alone are mended.

    Raises:
        InvalidModelError: As `inline_functions`.
    """
    model = put_in_order(inline_functions(model))
    _return_scores(model.graph)
    expand_quantisers(model)
    mend_nodes(model)
    return model


def _return_scores(graph: onnx.GraphProto) -> None:
    """Return the scores in place of each output that is a sequence of maps of them: a row for each map, in the order of the labels."""
    outputs = {value.name: value for value in graph.output}
    for node in [node for node in graph.node if (node.domain, node.op_type) == (_ML, "ZipMap")]:
        labels = sum(len(attribute.ints) + len(attribute.strings) for attribute in node.attribute)
        if not labels or not node.output or node.output[0] not in outputs:
            continue
        # A vector of scores is one map.
        shape = f"{node.output[0]}/shape"
        rows = numpy_helper.from_array(np.array([-1, labels], np.int64))
        node.op_type, node.domain = "Reshape", ""
        node.input.append(shape)
        del node.attribute[:]
        value = outputs[node.output[0]]
        value.type.Clear()
        value.type.tensor_type.elem_type = TensorProto.FLOAT
        graph.node.insert(0, helper.make_node("Constant", [], [shape], value=rows))
