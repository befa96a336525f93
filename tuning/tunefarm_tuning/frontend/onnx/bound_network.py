"""The network that is compiled: the file's, with the caller's shapes and values bound.

The checker, ONNX Runtime (results and timing), the importer and all that names a network's nodes read it by this module, so
that all see the same network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import numpy_helper

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16, widened
from tunefarm_tuning.frontend.onnx.binding import bind_inputs, real_inputs
from tunefarm_tuning.frontend.onnx.bound_values import bound_arrays
from tunefarm_tuning.frontend.onnx.control_flow.flatten import flatten_control_flow, has_control_flow
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes, read_model
from tunefarm_tuning.frontend.onnx.reference.exact_products import exact_products
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.task import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundNetwork:
    """A network whose inputs have fixed shapes.

    Attributes:
        model: Inputs bound to values are constants (initializers). Weights are not among the inputs.
        inputs: The other inputs, in the file's order, as `model` lists them.
        unresolved: Why its first control flow that could not be resolved cannot be compiled; None if there is none.
    """

    model: onnx.ModelProto
    inputs: tuple[TensorSpec, ...]
    unresolved: InvalidModelError | None = None


def bound_network(path: Path | str, binding: Binding) -> BoundNetwork:
    """Read a file that has passed the checks, and bind its inputs.

    Raises:
        InvalidModelError: As `bind_model`, or a code of `read_model`.
    """
    return bind_model(read_model(path, binding.shapes), binding, keep_unresolved=True)


def bind_model(model: onnx.ModelProto, binding: Binding, *, keep_unresolved: bool = False) -> BoundNetwork:
    """Bind the inputs of a model, which is changed.

    Equal files with equal bindings give equal networks, in whatever process. Control flow is resolved: no node of the
    network has an inner graph, but those that cannot be resolved, if these are kept.

    Raises:
        InvalidModelError: unknown-input, bad-shape, bad-value, zero-size, unknown-dimension, unsupported-dtype, or a code of
            `flatten_control_flow`.
    """
    arrays = bound_arrays(model.graph, binding)
    specs = bind_inputs(model.graph, binding.shapes, set(arrays))
    _fix_inputs(model, specs)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    unresolved = flatten_control_flow(model) if has_control_flow(model.graph) else []
    if unresolved and not keep_unresolved:
        raise unresolved[0]
    return BoundNetwork(model=model, inputs=specs, unresolved=unresolved[0] if unresolved else None)


def _fix_inputs(model: onnx.ModelProto, specs: tuple[TensorSpec, ...]) -> None:
    """Leave only the inputs of these specs, with their shapes; weights that are listed as inputs become constants."""
    graph = model.graph
    values = {value.name: value for value in real_inputs(graph)}
    fixed = []
    is_changed = False
    for spec in specs:
        value = onnx.ValueInfoProto()
        value.CopyFrom(values[spec.name])
        dims = value.type.tensor_type.shape.dim
        is_changed = is_changed or [dim.dim_value for dim in dims] != list(spec.shape)
        del dims[:]
        value.type.tensor_type.shape.SetInParent()  # a scalar has a shape, with no dimensions
        for size in spec.shape:
            dims.add().dim_value = size
        fixed.append(value)
    if len(graph.input) > len(fixed):
        _allow_constants(model)
    del graph.input[:]
    graph.input.extend(fixed)
    if is_changed:
        # What the file says of the tensors inside is of other sizes.
        del graph.value_info[:]


def _allow_constants(model: onnx.ModelProto) -> None:
    """Raise the version of the file's format to 4, from which on an initializer need not be an input, too."""
    if not 0 < model.ir_version < 4:
        return
    if model.ir_version < 3 and not model.opset_import:
        model.opset_import.add().version = 1  # what no version means there
    model.ir_version = 4


def runnable_bytes(model: onnx.ModelProto, *, rounds: bool = True) -> bytes:
    """Return a bound network as bytes that ONNX Runtime can run.

    Args:
        model: Of a `BoundNetwork`.
        rounds: Whether the twin of a network that computes in bfloat16 rounds as the network does (see `bfloat16.widened`). If so,
            ONNX Runtime does not round activations of its own accord, either, where the network only allows it, and multiplies bytes
            exactly (see `exact_products`).

    Raises:
        InvalidModelError: too-large.
    """
    model = widened(model, rounds=rounds) if uses_bfloat16(model.graph) else model
    if not rounds:
        return onnx_bytes(model)
    with exact_products(_computing_in_floats(model)) as exact:
        return onnx_bytes(exact)


def _computing_in_floats(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without the permission to round what `MatMulNBits` multiplies to 8 bits: no kernel here does so."""
    if not any(_permissions(node) for node in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for node in result.graph.node:
        for attribute in _permissions(node):
            node.attribute.remove(attribute)
    return result


def _permissions(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    return [a for a in node.attribute if node.op_type == "MatMulNBits" and a.name == "accuracy_level"]
