"""The state of a network: variables that it reads and sets at each call.

A compiled network keeps nothing between calls. The state becomes inputs and outputs of its own: the caller gives what the
call before returned, and begins with what the file's first call would begin with, mostly zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tunefarm_convert.onnx_writer import OnnxWriter
from tunefarm_convert.tflite.converter import variable_name
from tunefarm_convert.tflite.graph import Graph, Tensor
from tunefarm_convert.tflite.values import Values

SVDF_STATE = 4
"""Operand of an SVDF layer that holds its last steps."""


def svdf_variable(index: int) -> str:
    """Return the variable that holds the last steps of an SVDF layer; `index` is that of the tensor."""
    return f"svdf/steps_{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A variable as an input and an output of the network.

    Attributes:
        variable: The variable.
        source: Name of the input.
        result: Name of the output.
        tensor: Its number in `values`.
        values: The tensors of all states, before the call.
    """

    variable: str
    source: str
    result: str
    tensor: int
    values: Values


def read_states(graph: Graph, writer: OnnxWriter) -> list[State]:
    """Return the variables that a graph both reads and sets, in the order in which it reads them.

    The memory of an SVDF layer is one, too: such a layer is given one step a call.
    """
    handles = {
        op.outputs[0]: variable_name(op) for op in graph.operators if op.kind == "VAR_HANDLE" and op.outputs
    }
    assigned = {
        handles.get(op.inputs[0]) for op in graph.operators if op.kind == "ASSIGN_VARIABLE" and op.inputs
    }
    read: dict[str, Tensor] = {}
    for op in graph.operators:
        if op.kind == "SVDF" and len(op.inputs) > SVDF_STATE and op.inputs[SVDF_STATE] >= 0:
            tensor = graph.tensors[op.inputs[SVDF_STATE]]
            if tensor.variable:
                read.setdefault(svdf_variable(tensor.index), replace(tensor, variable=False))
        if op.kind == "READ_VARIABLE" and op.inputs and op.outputs:
            name = handles.get(op.inputs[0])
            if name is not None and name in assigned:
                read.setdefault(name, graph.tensors[op.outputs[0]])
    tensors = tuple(replace(tensor, index=i, data=None) for i, tensor in enumerate(read.values()))
    values = Values(Graph(tensors=tensors, operators=(), inputs=(), outputs=()), writer)
    states = []
    for number, variable in enumerate(read):
        label = variable.partition("/")[2] or f"state_{number}"
        source, result = writer.unique(label), writer.unique(f"{label}_next")
        values.put(number, source, raw=True)
        states.append(State(variable=variable, source=source, result=result, tensor=number, values=values))
    return states
