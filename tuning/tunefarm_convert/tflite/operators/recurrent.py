"""Recurrent layers over whole sequences.

The interpreter keeps their states in variables. These begin as zeros, and so does each call here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.tflite.converter import Converter, OperatorContext, TensorOf
from tunefarm_convert.tflite.states import SVDF_STATE, svdf_variable

Array = NDArray[np.float32]

_ACTIVATIONS = {0: "", 1: "Relu", 4: "Tanh"}
"""Functions by their numbers in the format. Without one, a layer is linear."""
_MAX_STEPS = 2048
_DIRECTIONS = ("forward", "reverse")
_I, _F, _C, _O = range(4)
"""The order of an LSTM's gates in the file. ONNX has the output gate second."""
_ONNX_ORDER = (_I, _O, _F, _C)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lstm:
    """The weights of a layer as real numbers, gate by gate: of the inputs, of the states, peepholes, biases."""

    inputs: Sequence[Array]
    states: Sequence[Array]
    peepholes: Sequence[Array] | None
    biases: Sequence[Array]
    projection: Array | None
    projection_bias: Array | None

    @property
    def units(self) -> int:
        return int(self.inputs[_F].shape[0])


def real_numbers(op: OperatorContext, position: int, operand: str) -> Array:
    """Return a constant as real numbers."""
    data, tensor = op.constant(position, operand), op.tensor(position)
    quantization = op.values.constant_quantization(op.index(position)) or tensor.quantization
    if data.dtype.kind == "f" or quantization is None:
        return data.astype(np.float32)
    shape = [1] * data.ndim
    if len(quantization.scale) > 1:
        shape[quantization.axis] = -1
    scale, zero = quantization.scale.reshape(shape), quantization.zero.reshape(shape)
    real: Array = ((data.astype(np.float64) - zero) * scale).astype(np.float32)
    return real


def lstm_weights(op: OperatorContext, behind: int = 0) -> Lstm:
    """Return the weights of a layer, whose operands follow on the input and as many others."""
    has_input_gate = op.has(behind + 1)
    gates = (_I, _F, _C, _O) if has_input_gate else (_F, _C, _O)
    inputs, states, biases = (
        {gate: real_numbers(op, behind + first + gate, "a weight") for gate in gates} for first in (1, 5, 12)
    )
    has_peepholes = op.has(behind + 10)
    peepholes = {
        gate: real_numbers(op, behind + position, "a peephole weight")
        for gate, position in ((_I, 9), (_F, 10), (_O, 11))
        if has_peepholes and (gate in gates)
    }
    if not has_input_gate:  # the input gate is what the forget gate leaves: 1 - sigmoid(x) = sigmoid(-x)
        for weights in (inputs, states, biases, *([peepholes] if has_peepholes else [])):
            weights[_I] = -weights[_F]
    return Lstm(
        inputs=[inputs[gate] for gate in range(4)],
        states=[states[gate] for gate in range(4)],
        biases=[biases[gate] for gate in range(4)],
        peepholes=[peepholes[gate] for gate in (_I, _F, _O)] if has_peepholes else None,
        projection=real_numbers(op, behind + 16, "a weight") if op.has(behind + 16) else None,
        projection_bias=real_numbers(op, behind + 17, "a bias") if op.has(behind + 17) else None,
    )


def sequence_of(op: OperatorContext, position: int = 0) -> tuple[str, tuple[int, int, int], bool]:
    """Return an input with its steps first, its shape, and whether the file has the batch first."""
    shape = op.need_rank(position, 3)
    if op.option("TimeMajor", False):
        return op.values.get(op.index(position)), (shape[0], shape[1], shape[2]), False
    x = op.values.arranged(op.index(position), (1, 0, 2))
    return x, (shape[1], shape[0], shape[2]), True


def first_state(op: OperatorContext, position: int) -> str | None:
    """Return the state before the first step; None if it is zero."""
    if not op.has(position) or op.tensor(position).variable:
        return None
    return op.values.get(op.index(position))


def _give(op: OperatorContext, result: str, shape: Sequence[int], *, batch_first: bool) -> None:
    """Set the output, from the states of all steps, step by step."""
    steps, batch, units = shape
    op.values.set_shape(op.output(), (batch, steps, units) if batch_first else (steps, batch, units))
    op.finish(op.node("Transpose", result, perm=[1, 0, 2]) if batch_first else result)


def _lstm(op: OperatorContext) -> None:
    if any(op.has(position) for position in range(20, 24)):
        raise op.unsupported_form("it normalises its gates, which tunefarm does not support")
    x, shape, batch_first = sequence_of(op)
    first = [first_state(op, position) for position in (18, 19)]
    result, units = run_lstm(op, lstm_weights(op), x, shape, first)
    _give(op, result, (*shape[:2], units), batch_first=batch_first)


def run_lstm(
    op: OperatorContext,
    weights: Lstm,
    x: str,
    shape: tuple[int, int, int],
    first: Sequence[str | None],
    *,
    backward: bool = False,
) -> tuple[str, int]:
    """Return the states of all steps, in the order of the steps, and the number of elements of each.

    Args:
        op: The operator.
        weights: The layer's.
        x: The input, with its steps first.
        shape: Of `x`.
        first: The state and the cell before the first step; None for zeros.
        backward: Whether the last step is the first.
    """
    activation = op.option("FusedActivationFunction")
    if activation not in _ACTIVATIONS:
        raise op.unsupported_form(f"activation number {activation} is not supported")
    steps, batch, size = shape
    if any(w.shape != (weights.units, size) for w in weights.inputs):
        raise op.bad_file(f"weights of shape {weights.inputs[_F].shape} do not take inputs of {size}")
    clip, projected_clip = (float(op.option(name, 0.0)) for name in ("CellClip", "ProjClip"))
    # A cell grows by one at most at each step: it is not cut before that.
    is_cut = 0 < clip < steps + (0 if first[1] is None else np.inf)
    if is_cut or weights.projection is not None or _ACTIVATIONS[activation] != "Tanh":
        loop = _Loop(op, weights, _ACTIVATIONS[activation], clip if is_cut else 0.0, projected_clip)
        return loop.run(x, shape, first, backward=backward)
    return _onnx_lstm(op, weights, x, (steps, batch), first, backward=backward), weights.units


def _onnx_lstm(
    op: OperatorContext,
    weights: Lstm,
    x: str,
    sizes: tuple[int, int],
    first: Sequence[str | None],
    *,
    backward: bool,
) -> str:
    steps, batch = sizes
    biases = np.concatenate([weights.biases[gate] for gate in _ONNX_ORDER])
    arrays = [
        np.concatenate([weights.inputs[gate] for gate in _ONNX_ORDER])[None],
        np.concatenate([weights.states[gate] for gate in _ONNX_ORDER])[None],
        np.concatenate([biases, np.zeros_like(biases)])[None],
    ]
    state = op.writer.ints([1, batch, weights.units])
    inputs = [x, *(op.writer.weight(array, "recurrent") for array in arrays), ""]
    inputs += ["" if name is None else op.node("Reshape", name, state) for name in first]
    if weights.peepholes is not None:
        input_gate, forget_gate, output_gate = weights.peepholes
        inputs.append(op.writer.weight(np.concatenate([input_gate, output_gate, forget_gate])[None]))
    while not inputs[-1]:
        inputs.pop()
    result = op.node("LSTM", *inputs, hidden_size=weights.units, direction=_DIRECTIONS[backward])
    return op.node("Reshape", result, op.writer.ints([steps, batch, weights.units]))


class _Loop:
    """An LSTM step by step, for what ONNX's operator does not have: cells that are cut, and projections."""

    def __init__(
        self, op: OperatorContext, weights: Lstm, activation: str, clip: float, projected_clip: float
    ) -> None:
        self._op = op
        self._weights = weights
        self._activation = activation
        self._clip = clip
        self._projected_clip = projected_clip
        self._recurrent = op.writer.weight(np.concatenate(weights.states).T.copy(), "recurrent")

    def run(
        self, x: str, sizes: tuple[int, int, int], first: Sequence[str | None], *, backward: bool
    ) -> tuple[str, int]:
        """Return the states of all steps, and the number of elements of each."""
        op, weights = self._op, self._weights
        steps, batch, _ = sizes
        if steps > _MAX_STEPS:
            raise op.unsupported_form(f"{steps} steps; the limit is {_MAX_STEPS}")
        product = op.node("MatMul", x, op.writer.weight(np.concatenate(weights.inputs).T.copy(), "recurrent"))
        product = op.node("Add", product, op.writer.weight(np.concatenate(weights.biases)))
        units = weights.units if weights.projection is None else int(weights.projection.shape[0])
        state, cell = first
        states = []
        for row in _rows(op, product, steps)[:: -1 if backward else 1]:
            state, cell = self._step(op.node("Reshape", row, op.writer.ints([batch, -1])), state, cell)
            states.append(op.node("Reshape", state, op.writer.ints([1, batch, units])))
        if backward:
            states.reverse()
        return (op.node("Concat", *states, axis=0) if steps > 1 else states[0]), units

    def _step(self, gates: str, state: str | None, cell: str | None) -> tuple[str, str]:
        op, writer, weights = self._op, self._op.writer, self._weights
        if state is not None:
            gates = op.node("Add", gates, op.node("MatMul", state, self._recurrent))
        names = [f"{writer.scope}_gate" for _ in range(4)]
        i, f, c, o = writer.nodes("Split", [gates, writer.ints([weights.units] * 4)], names, axis=1)
        peepholes = weights.peepholes
        if peepholes is not None and cell is not None:
            i, f = (
                op.node("Add", gate, op.node("Mul", cell, writer.weight(peephole)))
                for gate, peephole in zip((i, f), peepholes[:2], strict=True)
            )
        new = op.node("Mul", op.node("Sigmoid", i), self._activated(c))
        if cell is not None:
            new = op.node("Add", op.node("Mul", op.node("Sigmoid", f), cell), new)
        new = self._cut(new, self._clip)
        if peepholes is not None:
            o = op.node("Add", o, op.node("Mul", new, writer.weight(peepholes[2])))
        result = op.node("Mul", op.node("Sigmoid", o), self._activated(new))
        if weights.projection is not None:
            result = op.node("MatMul", result, writer.weight(weights.projection.T.copy(), "projection"))
            if weights.projection_bias is not None:
                result = op.node("Add", result, writer.weight(weights.projection_bias))
            result = self._cut(result, self._projected_clip)
        return result, new

    def _activated(self, name: str) -> str:
        return self._op.node(self._activation, name) if self._activation else name

    def _cut(self, name: str, limit: float) -> str:
        if limit <= 0:
            return name
        ends = [self._op.writer.weight(np.array(end, np.float32)) for end in (-limit, limit)]
        return self._op.node("Clip", name, *ends)


def _rows(op: OperatorContext, name: str, steps: int) -> list[str]:
    if steps == 1:
        return [name]
    names = [f"{op.writer.scope}_step" for _ in range(steps)]
    return op.writer.nodes("Split", [name, op.writer.ints([1] * steps)], names, axis=0)


def _rnn(op: OperatorContext) -> None:
    x, shape, batch_first = sequence_of(op)
    weights, recurrent, bias = (real_numbers(op, position, "a weight") for position in (1, 2, 3))
    result = run_rnn(op, (weights, recurrent, bias), x, shape, first_state(op, 4))
    _give(op, result, (*shape[:2], weights.shape[0]), batch_first=batch_first)


def run_rnn(
    op: OperatorContext,
    parts: tuple[Array, Array, Array],
    x: str,
    shape: tuple[int, int, int],
    first: str | None,
    *,
    backward: bool = False,
) -> str:
    """Return the states of all steps, in the order of the steps.

    Args:
        op: The operator.
        parts: The weights of inputs, those of states, and the bias.
        x: The input, with its steps first.
        shape: Of `x`.
        first: The state before the first step; None for zeros.
        backward: Whether the last step is the first.
    """
    activation = _ACTIVATIONS.get(op.option("FusedActivationFunction"), "")
    if not activation:
        raise op.unsupported_form("its activation is neither tanh nor ReLU")
    steps, batch, size = shape
    weights, recurrent, bias = parts
    units = weights.shape[0]
    if weights.shape != (units, size) or recurrent.shape != (units, units) or bias.shape != (units,):
        raise op.bad_file(f"weights of shape {weights.shape} do not take inputs of {size}")
    arrays = [weights[None], recurrent[None], np.concatenate([bias, np.zeros_like(bias)])[None]]
    inputs = [x, *(op.writer.weight(array, "recurrent") for array in arrays)]
    if first is not None:
        inputs += ["", op.node("Reshape", first, op.writer.ints([1, batch, units]))]
    fields: dict[str, Any] = {"hidden_size": units, "activations": [activation]}
    result = op.node("RNN", *inputs, direction=_DIRECTIONS[backward], **fields)
    return op.node("Reshape", result, op.writer.ints([steps, batch, units]))


def _svdf(op: OperatorContext) -> None:
    """Convert a layer that filters its last steps: a product with the input, and one over the time of each filter."""
    batch, size = op.need_rank(0, 2)
    features, times = real_numbers(op, 1, "a weight"), real_numbers(op, 2, "a weight")
    rank = int(op.option("Rank", 1))
    filters, steps = times.shape if times.ndim == 2 else (0, 0)
    if not filters or rank < 1 or filters % rank or features.shape != (filters, size):
        raise op.bad_file(
            f"filters of shapes {list(features.shape)} and {list(times.shape)}, of rank {rank}, do not take inputs of {size}"
        )
    held = op.program.variables.get(svdf_variable(op.index(SVDF_STATE)))
    if held is None or not op.tensor(SVDF_STATE).variable:
        raise op.unsupported_form("its memory is not a variable of the file's first graph")
    if op.shape(SVDF_STATE) != (batch, filters * steps):
        raise op.bad_file(
            f"a memory of shape {list(op.shape(SVDF_STATE))} for {filters} filters of {steps} steps"
        )
    newest = op.node("MatMul", op.values.get(op.index(0)), op.writer.weight(np.ascontiguousarray(features.T)))
    sizes = op.writer.ints([batch, filters, -1])
    memory = op.node("Reshape", newest, sizes)
    if steps > 1:
        memory = op.node("Concat", _kept_steps(op, held, sizes, steps), memory, axis=2)
    state = op.index(SVDF_STATE)
    op.values.put(state, op.node("Reshape", memory, op.writer.ints([batch, filters * steps])))
    op.program.variables[svdf_variable(state)] = (op.values, state)
    weighed = op.node("Mul", op.values.get(state), op.writer.weight(times.reshape(1, -1)))
    by_unit = op.node("Reshape", weighed, op.writer.ints([batch, filters // rank, rank * steps]))
    result = op.node("ReduceSum", by_unit, op.writer.ints([2]), keepdims=0)
    if op.has(3):
        result = op.node("Add", result, op.values.bias(op.index(3)))
    # The interpreter's layer of integers leaves its activation to the range of the output.
    op.finish(result if op.values.tensor(op.output()).is_quantized else op.activated(result))


def _kept_steps(op: OperatorContext, memory: TensorOf, sizes: str, steps: int) -> str:
    """Return all steps but the first of a memory as real numbers, by filter.

    Its integers are what is cut: ONNX Runtime's optimiser fails on a `Slice` or `Reshape` behind a `DequantizeLinear` of these.
    """
    values, index = memory
    tensor, scales = values.tensor(index), values.tensor(index).quantization
    name = op.node("Reshape", values.get(index, raw=True), sizes)
    name = op.node("Slice", name, op.writer.ints([1]), op.writer.ints([steps]), op.writer.ints([2]))
    if not tensor.is_quantized or scales is None:
        return name
    parts = scales.scale, scales.zero.astype(tensor.dtype)
    return op.node("DequantizeLinear", name, *(op.writer.weight(part.reshape(())) for part in parts))


CONVERTERS: Mapping[str, Converter] = {
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}
