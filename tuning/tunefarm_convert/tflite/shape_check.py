"""Compare the shapes in a TFLite file with those that its operators compute.

Converters use the file's shapes. The interpreter infers them again, so a file can work there with wrong ones: by mistake,
or because it leaves dimensions open.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper, shape_inference

from tunefarm_convert.tflite.graph import Tensor, bad_file
from tunefarm_tuning.core.untrusted_text import clean, clean_message

_SMALL = 64
"""Maximum number of elements of a constant that shape inference may need."""


def check_shapes(model: onnx.ModelProto, declared: Mapping[str, tuple[Tensor, tuple[int, ...]]]) -> None:
    """Compare the shapes that ONNX infers with those that the file declares.

    `declared` has the file's tensor, and its shape in this layout, by the name of the ONNX tensor that holds it.

    Raises:
        InvalidModelError: invalid-tflite.
    """
    plain = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = plain.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    for weight in model.graph.initializer:
        dims = list(weight.dims)
        if len(dims) <= 1 and sum(dims) <= _SMALL:
            graph.initializer.append(weight)
        else:  # shape inference does not need the elements of a large constant
            graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, dims))
    for value in model.graph.output:
        kind = value.type.tensor_type.elem_type
        graph.output.append(helper.make_tensor_value_info(value.name, kind, None))
    try:
        inferred = shape_inference.infer_shapes(plain, strict_mode=True, data_prop=True).graph
    except shape_inference.InferenceError as error:
        reason = clean_message(error)
        raise bad_file(f"the shapes in the TFLite file do not fit each other: {reason}") from error
    for value in (*inferred.value_info, *inferred.output):
        if value.name in declared and value.type.tensor_type.HasField("shape"):
            tensor, shape = declared[value.name]
            dims = value.type.tensor_type.shape.dim
            known = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
            if len(known) != len(shape) or any(
                a is not None and a != b for a, b in zip(known, shape, strict=True)
            ):
                raise bad_file(
                    f"the TFLite file says that tensor '{clean(tensor.name, 60)}' (number {tensor.index}) "
                    f"has a shape like {list(shape)}, but the operators before it make {known}; if the "
                    "model has dynamic dimensions, fix them when it is converted to TFLite"
                )
