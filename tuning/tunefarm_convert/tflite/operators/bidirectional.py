"""Recurrent layers that go over a sequence forward and backward.

The interpreter keeps their states in variables alone, so that each call begins with zeros. It has two faults of its own: of several samples, an
LSTM that merges its outputs and has the batch first gives other numbers at each call, where we give those that are meant; and an RNN that has
the batch first ignores a second input without weights, as we do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.operators.recurrent import (
    Array,
    Lstm,
    lstm_weights,
    real_numbers,
    run_lstm,
    run_rnn,
    sequence_of,
)

_LSTM_BACKWARD = 17
"""How many operands an LSTM's weights of one direction are."""
_LSTM_AUXILIARY, _RNN_AUXILIARY = 39, 9
_F = 1


class _Sequences:
    """What each direction of a layer reads: one input, or a second as well.

    A second input with weights of its own is read behind the first, as one. Without, the layer that goes backward reads it alone.

    Attributes:
        shape: Of the input: steps, batch, and elements.
        batch_first: Whether the file has the batch before the steps.
        both: Whether each direction reads both inputs.
    """

    def __init__(self, op: OperatorContext, auxiliary: int, *, has_weights: bool) -> None:
        self._op = op
        x, self.shape, self.batch_first = sequence_of(op)
        self.both = op.has(auxiliary) and has_weights
        self._reads = [(x, self.shape)] * 2
        if not op.has(auxiliary) or (op.operator.kind.endswith("RNN") and self.batch_first and not self.both):
            return
        other, other_shape, _ = sequence_of(op, auxiliary)
        if other_shape[:2] != self.shape[:2]:
            raise op.bad_file(f"inputs of shapes {list(op.shape(0))} and {list(op.shape(auxiliary))}")
        if self.both:
            joined = op.node("Concat", x, other, axis=2)
            self._reads = [(joined, (*self.shape[:2], self.shape[2] + other_shape[2]))] * 2
        else:
            self._reads[1] = other, other_shape

    def read_by(self, direction: int) -> tuple[str, tuple[int, int, int]]:
        """Return the input of the layer that goes forward (0) or backward (1), and its shape."""
        return self._reads[direction]

    def give(self, results: Sequence[str], units: Sequence[int]) -> None:
        """Set the outputs: one of both directions side by side, or one of each."""
        op = self._op
        if op.option("MergeOutputs", False):
            results, units = [op.node("Concat", *results, axis=2)], [sum(units)]
        steps, batch, _ = self.shape
        for position, (result, width) in enumerate(zip(results, units, strict=True)):
            shape = (batch, steps, width) if self.batch_first else (steps, batch, width)
            op.values.set_shape(op.output(position), shape)
            result = op.node("Transpose", result, perm=[1, 0, 2]) if self.batch_first else result
            op.finish(result, position=position)


def _joined(op: OperatorContext, weights: Lstm, first: int) -> Lstm:
    """Return weights that read a second input as well; `first` is the first operand of four that it is multiplied by."""
    has_input_gate = op.has(first)
    own: list[Array] = [
        real_numbers(op, first + gate, "a weight")
        if gate or has_input_gate
        else -real_numbers(op, first + _F, "a weight")
        for gate in range(4)
    ]
    if any(w.ndim != 2 or len(w) != weights.units for w in (*own, *weights.inputs)):
        raise op.bad_file("weights of its second input do not fit those of the first")
    return replace(
        weights, inputs=[np.concatenate(pair, axis=1) for pair in zip(weights.inputs, own, strict=True)]
    )


def _lstm(op: OperatorContext) -> None:
    sequences = _Sequences(op, _LSTM_AUXILIARY, has_weights=op.has(_LSTM_AUXILIARY + 2))
    results, units = [], []
    for direction in range(2):
        weights = lstm_weights(op, direction * _LSTM_BACKWARD)
        if sequences.both:
            weights = _joined(op, weights, _LSTM_AUXILIARY + 1 + 4 * direction)
        x, shape = sequences.read_by(direction)
        result, width = run_lstm(op, weights, x, shape, (None, None), backward=direction == 1)
        results.append(result)
        units.append(width)
    sequences.give(results, units)


def _rnn(op: OperatorContext) -> None:
    sequences = _Sequences(op, _RNN_AUXILIARY, has_weights=op.has(_RNN_AUXILIARY + 1))
    results, units = [], []
    for direction in range(2):
        first = 1 + 4 * direction
        weights, recurrent, bias = (real_numbers(op, first + i, "a weight") for i in range(3))
        if sequences.both:
            own = real_numbers(op, _RNN_AUXILIARY + 1 + direction, "a weight")
            if own.ndim != 2 or weights.ndim != 2 or len(own) != len(weights):
                raise op.bad_file("weights of its second input do not fit those of the first")
            weights = np.concatenate([weights, own], axis=1)
        x, shape = sequences.read_by(direction)
        parts = weights, recurrent, bias
        results.append(run_rnn(op, parts, x, shape, None, backward=direction == 1))
        units.append(weights.shape[0])
    sequences.give(results, units)


CONVERTERS: Mapping[str, Converter] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "BIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}
