"""The conversion of a file's graphs, operator by operator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tunefarm_convert.onnx_writer import OnnxWriter
from tunefarm_convert.tflite.converter import Converter, OperatorContext, TensorOf
from tunefarm_convert.tflite.folding import fold
from tunefarm_convert.tflite.graph import DTYPES, Graph, Operator, Tensor, bad_file
from tunefarm_convert.tflite.shapes import set_output_shapes
from tunefarm_convert.tflite.values import Values
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean, clean_message

_MAX_LISTED = 24
_MAX_DEPTH = 16
"""Maximum number of graphs that call one another."""
_MAX_NODES = 200_000
_RESOURCE = "resource"
"""Dtype of tensors that refer to variables."""


class FileProgram:
    """Converts the graphs of a file with a table of converters. See `Program`."""

    def __init__(
        self, graphs: Sequence[Graph], writer: OnnxWriter, converters: Mapping[str, Converter]
    ) -> None:
        self.variables: dict[str, TensorOf] = {}
        self.states: frozenset[str] = frozenset()
        self.initializes = False
        self.converted: list[Values] = []
        self._graphs = graphs
        self._writer = writer
        self._converters = converters
        self._depth = 0
        self._num_operators = 0

    def call(self, number: int, arguments: Sequence[TensorOf]) -> list[TensorOf]:
        """Convert a graph on some arguments, and return its results.

        Raises:
            InvalidModelError: As `run`.
        """
        if not 0 < number < len(self._graphs):
            raise bad_file(f"the TFLite file calls graph number {number} of {len(self._graphs)}")
        graph = self._graphs[number]
        if len(graph.inputs) != len(arguments):
            raise bad_file(
                f"the TFLite file calls graph number {number} with {len(arguments)} tensors; it takes "
                f"{len(graph.inputs)}"
            )
        if self._depth == _MAX_DEPTH:
            raise bad_file(f"more than {_MAX_DEPTH} graphs of the TFLite file call one another")
        values = Values(graph, self._writer)
        for index, (other, source) in zip(graph.inputs, arguments, strict=True):
            values.adopt(index, other, source)
        self._depth += 1
        scope = self._writer.scope
        self.run(graph, values, recomputes=True)
        self._writer.scope = scope
        self._depth -= 1
        return [(values, index) for index in graph.outputs]

    def run(self, graph: Graph, values: Values, *, recomputes: bool) -> None:
        """Convert the operators of a graph, whose inputs `values` has.

        Args:
            graph: The graph.
            values: Its tensors.
            recomputes: Whether the shapes follow from those of the inputs; otherwise they are those of the file.

        Raises:
            InvalidModelError: invalid-tflite, unsupported-operator, unsupported-dtype, zero-size, too-large.
        """
        self.refuse_unknown(graph)
        self.converted.append(values)
        for operator in graph.operators:
            _check_dtypes(graph, operator)
            _refuse_recomputed(values, operator)
            self._num_operators += 1
            if max(self._num_operators, self._writer.num_nodes) > _MAX_NODES:
                raise InvalidModelError(
                    f"the loops of the TFLite file make more than {_MAX_NODES} nodes", code="too-large"
                )
            self._writer.scope = f"{operator.kind}_{operator.index}"
            op = OperatorContext(operator=operator, values=values, writer=self._writer, program=self)
            try:
                self._convert(op, recomputes=recomputes)
            except (InvalidModelError, MemoryError):
                raise
            except Exception as error:
                raise bad_file(f"{operator.label}, is malformed: {clean_message(error, 200)}") from error

    def _convert(self, op: OperatorContext, *, recomputes: bool) -> None:
        values = op.values
        for index in op.operator.inputs:
            if index >= 0 and not values.exists(index) and 0 in values.shape(index):
                tensor = values.tensor(index)
                values.set_constant(index, np.zeros(tensor.shape, tensor.dtype))
        if recomputes:
            set_output_shapes(op)
        since = self._writer.num_nodes
        self._converters[op.operator.kind](op)
        fold(op, since)
        for index in op.operator.outputs:
            if values.constant(index) is None and not math.prod(values.shape(index)):
                raise empty_tensor(values.tensor(index))

    def refuse_unknown(self, graph: Graph) -> None:
        """Refuse a graph with operators that no converter knows; the error names all of them.

        Raises:
            InvalidModelError: unsupported-operator.
        """
        unknown = [operator for operator in graph.operators if operator.kind not in self._converters]
        counts = Counter(operator.kind for operator in unknown)
        if not counts:
            return
        first_indexes: dict[str, int] = {}
        for operator in unknown:
            first_indexes.setdefault(operator.kind, operator.index)
        described = [
            f"{clean(kind, 60)} (operator number {first_indexes[kind]}"
            f"{f', {count} in all' if count > 1 else ''})"
            for kind, count in counts.items()
        ]
        more = f" and {len(described) - _MAX_LISTED} more kinds" if len(described) > _MAX_LISTED else ""
        raise InvalidModelError(
            f"tunefarm does not support these TFLite operators: {', '.join(described[:_MAX_LISTED])}{more}",
            code="unsupported-operator",
            operator=clean(unknown[0].kind, 60),
            node=str(unknown[0].index),
            operators=[clean(kind, 60) for kind in counts][:_MAX_LISTED],
        )


def check_dtype(tensor: Tensor) -> None:
    """Refuse a tensor whose elements are nothing to compute with.

    Raises:
        InvalidModelError: unsupported-dtype.
    """
    if tensor.dtype not in DTYPES:
        name = clean(tensor.dtype, 30)
        raise InvalidModelError(
            f"tensor '{clean(tensor.name, 60)}' (number {tensor.index}) has element type {name}; tunefarm "
            f"supports {', '.join(sorted(DTYPES))}",
            code="unsupported-dtype",
            dtype=name,
        )


def empty_tensor(tensor: Tensor) -> InvalidModelError:
    """Return the error for a tensor without elements."""
    return InvalidModelError(
        f"tensor '{clean(tensor.name, 60)}' has the shape {list(tensor.shape)}: there is nothing to compute",
        code="zero-size",
    )


def _check_dtypes(graph: Graph, operator: Operator) -> None:
    for index in (*operator.inputs, *operator.outputs):
        if index >= 0 and graph.tensors[index].dtype != _RESOURCE:
            check_dtype(graph.tensors[index])


def _refuse_recomputed(values: Values, operator: Operator) -> None:
    if any(values.exists(index) for index in operator.outputs):
        raise bad_file(f"{operator.label}: something else computes its output already")
