"""Write a graph on complex tensors as one on their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tunefarm_convert.tflite.graph import COMPLEX_DTYPE, Graph, Operator, Tensor

_BY_PARTS = frozenset({
    "ADD", "ADD_N", "BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "GATHER", "GATHER_ND", "MEAN", "NEG", "PACK",
    "PAD", "RESHAPE", "REVERSE_V2", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "SUB", "SUM", "TILE",
    "TRANSPOSE", "UNPACK",
})  # fmt: skip
"""Operators that do the same to both parts."""


def split_complex(graph: Graph) -> Graph:
    """Return a graph that computes the same on tensors of real numbers; the graph itself, if it has no others.

    Operators that have no form on parts stay as they are. The tensors keep their numbers, and those of parts follow.
    """
    whole = [tensor for tensor in graph.tensors if tensor.dtype == COMPLEX_DTYPE]
    if not whole:
        return graph
    split = _Split(graph)
    operators = tuple(part for operator in graph.operators for part in split.operators(operator))
    return replace(graph, tensors=tuple(split.tensors), operators=operators)


class _Split:
    def __init__(self, graph: Graph) -> None:
        self.tensors = list(graph.tensors)
        self._parts: dict[int, tuple[int, int]] = {}
        for tensor in graph.tensors:
            if tensor.dtype == COMPLEX_DTYPE:
                parts = (np.real, np.imag)
                data = [None if tensor.data is None else part(tensor.data) for part in parts]
                self._parts[tensor.index] = self._add(tensor, data[0]), self._add(tensor, data[1])

    def _add(self, like: Tensor, data: np.typing.NDArray[np.float32] | None = None) -> int:
        index = len(self.tensors)
        self.tensors.append(replace(like, index=index, dtype="float32", data=data, quantization=None))
        return index

    def operators(self, operator: Operator) -> Iterator[Operator]:
        """Return the operators on parts that compute the same as one of the file."""
        of_complex = [index in self._parts for index in operator.inputs]
        gives_complex = [index in self._parts for index in operator.outputs]
        if not any(of_complex) and not any(gives_complex):
            yield operator
        elif operator.kind == "RFFT2D" and all(gives_complex) and gives_complex:
            yield replace(operator, outputs=self._parts[operator.outputs[0]])
        elif operator.kind == "COMPLEX_ABS" and all(of_complex) and of_complex:
            yield replace(operator, inputs=self._parts[operator.inputs[0]])
        elif operator.kind in ("REAL", "IMAG", "CAST") and of_complex == [True] and gives_complex == [False]:
            part = self._part(operator.inputs[0], 1 if operator.kind == "IMAG" else 0)
            yield replace(operator, kind="CAST", inputs=(part,))
        elif operator.kind == "CAST" and gives_complex == [True]:
            real, imaginary = self._parts[operator.outputs[0]]
            yield replace(operator, outputs=(real,))
            yield replace(operator, kind="ZEROS_LIKE", inputs=(real,), outputs=(imaginary,))
        elif operator.kind == "SHAPE":
            yield replace(operator, inputs=(self._part(operator.inputs[0], 0),))
        elif operator.kind == "MUL" and of_complex == [True, True] and gives_complex == [True]:
            yield from self._product(operator)
        elif operator.kind in _BY_PARTS and all(gives_complex):
            for number in range(2):
                inputs = tuple(self._part(index, number) for index in operator.inputs)
                outputs = tuple(self._part(index, number) for index in operator.outputs)
                yield replace(operator, inputs=inputs, outputs=outputs)
        else:
            yield operator

    def _part(self, index: int, number: int) -> int:
        return self._parts[index][number] if index in self._parts else index

    def _product(self, operator: Operator) -> Iterator[Operator]:
        (a, b), (c, d) = (self._parts[index] for index in operator.inputs)
        real, imaginary = self._parts[operator.outputs[0]]
        for output, (p, q), (r, s), kind in (
            (real, (a, c), (b, d), "SUB"),
            (imaginary, (a, d), (b, c), "ADD"),
        ):
            terms = self._add(self.tensors[output]), self._add(self.tensors[output])
            yield replace(operator, inputs=(p, q), outputs=terms[:1])
            yield replace(operator, inputs=(r, s), outputs=terms[1:])
            yield replace(operator, kind=kind, inputs=terms, outputs=(output,))
