"""Converters of `LSTM`, `GRU` and `RNN`: a product with the inputs of all steps, and our own kernel for the recurrence.

TVM's importer knows none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from tunefarm_tuning.tvm.frontend.converters.quantized import dequantize
from tunefarm_tuning.tvm.frontend.converters.weight_operations import (
    added,
    joined,
    reshaped,
    sliced,
    sliced_at,
    tiled_weight,
    transposed,
)
from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    const,
    constant_value,
    dtype_of,
    needed_constant,
    needed_shape,
    symbolic_shape,
    text,
)
from tunefarm_tuning.tvm.kernels.layers.recurrence import ACTIVATION_DEFAULTS, Activation, Recurrence
from tunefarm_tuning.tvm.kernels.layers.recurrent import recurrent_kernel

_USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_CANDIDATE = 2  # the index of the candidate state among a GRU's gates


def convert_recurrent(kind: str) -> Converter:
    """Return the converter of ``"LSTM"``, ``"GRU"`` or ``"RNN"``."""

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        return _Layer(context, kind, inputs, attributes).convert()

    return convert


def convert_dynamic_quantize_lstm(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert ONNX Runtime's `DynamicQuantizeLSTM`: an `LSTM` of dequantised weights, whose inputs and states are rounded to 8 bits.

    Without the rounding a network of several layers would give other results altogether.
    """
    x, w, r, b, lengths, first_h, first_c, peepholes, w_scale, w_zero, r_scale, r_zero = [*inputs, None][:12]
    weights = []
    for name, stored, scale, zero in (("W", w, w_scale, w_zero), ("R", r, r_scale, r_zero)):
        value, scales = needed_constant(stored, name), needed_constant(scale, f"{name}_scale")
        directions, _, columns = value.shape
        zeros = np.zeros_like(scales) if zero is None else needed_constant(zero, f"{name}_zero_point")
        per_column = [
            np.broadcast_to(part.reshape(directions, 1, -1), (directions, 1, columns))
            for part in (scales, zeros)
        ]
        floats = (value.astype(np.float32) - per_column[1].astype(np.float32)) * per_column[0]
        weights.append(const(np.ascontiguousarray(floats.transpose(0, 2, 1))))
    integers, scale, zero = context.convert("DynamicQuantizeLinear", [x], {}, context.opset)
    x = dequantize(context, *(context.emit(part) for part in (integers, scale, zero)))
    operands = [x, *weights, b, lengths, first_h, first_c, peepholes]
    return _Layer(context, "LSTM", operands, attributes, rounded=True).convert()


class _Layer:
    """A node that is being converted."""

    def __init__(
        self,
        context: NodeContext,
        kind: str,
        inputs: Sequence[Any],
        attributes: dict[str, Any],
        *,
        rounded: bool = False,
    ) -> None:
        self._context = context
        self._attributes = attributes
        x, w, r, b, lengths, first_h, first_c, peepholes = [*inputs, *[None] * 8][:8]
        self._dtype = dtype_of(x)
        if self._dtype not in ("float32", "float64"):
            raise UnsupportedFormError(f"{self._dtype} is not supported")
        if attributes.get("layout", 0):
            raise UnsupportedFormError(
                "layout 1 is not supported: ONNX Runtime does not run it; transpose around the node"
            )
        self._x = x
        shape = symbolic_shape(self._x)
        if shape is None:
            raise UnsupportedFormError("the shape of its input cannot be known before the model runs")
        steps, batch, _ = shape
        self._w, self._r = w, r
        self._directions, rows, hidden = needed_shape(r)
        gates = rows // hidden
        self._b = const(np.zeros((self._directions, 2 * gates * hidden), self._dtype)) if b is None else b
        self._peepholes = peepholes
        self._first = [first_h, first_c] if kind == "LSTM" else [first_h]
        self._lengths = self._open_lengths(lengths, steps)
        self._usual = Recurrence(
            kind=kind,
            steps=steps,
            batch=batch,
            hidden=hidden,
            dtype=self._dtype,
            activations=(),
            clip=attributes.get("clip"),
            coupled=bool(attributes.get("input_forget", 0)),
            reset_after=bool(attributes.get("linear_before_reset", 0)),
            peepholes=self._peepholes is not None,
            ragged=self._lengths is not None,
            rounded=rounded,
        )

    def convert(self) -> Any:
        """Return its outputs: the states of all steps, the last one, and an LSTM's last cell."""
        direction = text(self._attributes, "direction", "forward")
        backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
        if len(backwards) != self._directions:
            raise UnsupportedFormError(f"R has {self._directions} directions, and direction is {direction}")
        activations = _activations(self._usual.kind, self._attributes, len(backwards))
        cells = [
            replace(self._usual, reverse=reverse, activations=next(activations)) for reverse in backwards
        ]
        results = self._run(cells)
        # [steps, batch, hidden] and [batch, hidden], each with the directions before the batch.
        axes = (1, *[0] * len(self._first))
        outputs = [
            self._side_by_side(list(parts), axis)
            for parts, axis in zip(zip(*results, strict=True), axes, strict=True)
        ]
        outputs = outputs[: max(1, self._context.outputs)]
        return outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)

    def _run(self, cells: Sequence[Recurrence]) -> list[list[Any]]:
        """Return the results of each direction."""
        arguments = [
            argument for number, cell in enumerate(cells) for argument in self._arguments(number, cell)
        ]
        kernel = self._context.bb.add_func(recurrent_kernel(*cells), cells[0].kind.lower())
        state = [cells[0].batch, cells[0].hidden]
        shapes = [[cells[0].steps, *state], *[state] * len(self._first)]
        types = [relax.TensorType(shape, self._dtype) for _ in cells for shape in shapes]
        outputs = self._emit(relax.call_tir(kernel, arguments, out_ty=types))
        results = [self._emit(relax.TupleGetItem(outputs, index)) for index in range(len(types))]
        return [results[first : first + len(shapes)] for first in range(0, len(results), len(shapes))]

    def _arguments(self, number: int, cell: Recurrence) -> list[Any]:
        """Return the arguments of the kernel for one direction."""
        context, hidden, gates = self._context, cell.hidden, cell.gates * cell.hidden
        bias = sliced_at(context, self._b, number, 0, gates)
        of_states = sliced_at(context, self._b, number, gates, 2 * gates)
        if cell.reset_after:
            # the candidate's bias of states is added before the reset, in the kernel
            before = added(context, *(sliced(context, x, 0, _CANDIDATE * hidden) for x in (bias, of_states)))
            bias = joined(context, [before, sliced(context, bias, _CANDIDATE * hidden, gates)])
        else:
            bias = added(context, bias, of_states)
        w = transposed(context, sliced_at(context, self._w, number, 0, gates))
        product = context.node("MatMul", self._x, w)
        product = self._emit(relax.op.add(product, reshaped(context, bias, (1, 1, gates))))
        arguments, first = [product], 0
        for count in cell.products:
            last = first + count * hidden
            arguments.append(tiled_weight(context, sliced_at(context, self._r, number, first, last)))
            first = last
        if cell.reset_after:
            arguments.append(sliced(context, of_states, _CANDIDATE * hidden, gates))
        if self._peepholes is not None:
            peepholes = sliced_at(context, self._peepholes, number, 0, 3 * hidden)
            arguments.append(reshaped(context, peepholes, (3, hidden)))
        if self._lengths is not None:
            arguments.append(self._lengths)
        return arguments + [self._state(first, number, cell) for first in self._first]

    def _state(self, first: Any, number: int, cell: Recurrence) -> Any:
        """Return a direction's first state."""
        shape = (cell.batch, cell.hidden)
        if first is None and isinstance(cell.batch, int):
            return const(np.zeros(shape, cell.dtype))
        if first is None:
            return self._emit(relax.op.zeros(relax.ShapeExpr(shape), cell.dtype))
        of_direction = self._emit(relax.op.strided_slice(first, [0], [number], [number + 1]))
        return self._emit(relax.op.reshape(of_direction, shape))

    def _side_by_side(self, parts: Sequence[Any], axis: int) -> Any:
        return (
            self._emit(relax.op.stack(list(parts), axis))
            if len(parts) > 1
            else self._emit(relax.op.expand_dims(parts[0], axis))
        )

    def _open_lengths(self, lengths: Any, steps: Any) -> Any:
        """Return the lengths of the sequences; None if all sequences have all steps."""
        if lengths is None:
            return None
        known = constant_value(lengths)
        if known is not None and isinstance(steps, int) and bool((known == steps).all()):
            return None
        return lengths if dtype_of(lengths) == "int32" else self._emit(relax.op.astype(lengths, "int32"))

    def _emit(self, expression: Any) -> Any:
        return self._context.emit(expression)


def _activations(kind: str, attributes: dict[str, Any], directions: int) -> Iterator[tuple[Activation, ...]]:
    """Yield the activations of each direction. Activations with parameters take the next of the lists of alphas and betas."""
    usual = _USUAL[kind]
    names = [
        name.decode() if isinstance(name, bytes) else str(name) for name in attributes.get("activations", ())
    ]
    names = names or list(usual) * directions
    if len(names) != len(usual) * directions:
        raise UnsupportedFormError(f"it has {len(names)} activations, and not {len(usual) * directions}")
    alphas, betas = (iter(attributes.get(f"activation_{which}", ())) for which in ("alpha", "beta"))
    activations = []
    for name in names:
        known = {known_name.lower(): known_name for known_name in ACTIVATION_DEFAULTS}.get(name.lower())
        if known is None:
            raise UnsupportedFormError(f"its activation {name} is not supported")
        numbers = [
            next(iterator, usually)
            for iterator, usually in zip((alphas, betas), ACTIVATION_DEFAULTS[known], strict=False)
        ]
        if None in numbers:
            raise UnsupportedFormError(
                f"its activation {name} is given no alpha or beta, where runtimes differ"
            )
        activations.append(
            Activation(known, tuple(float(number) for number in numbers if number is not None))
        )
    for first in range(0, len(activations), len(usual)):
        yield tuple(activations[first : first + len(usual)])
