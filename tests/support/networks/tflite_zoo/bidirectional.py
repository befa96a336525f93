"""Recurrent layers that go over a sequence forward and backward."""

from __future__ import annotations

from typing import Any

from tflite_zoo.cases import RELU, ZOO, Case, Net
from tflite_zoo.recurrent import TANH

_SIZE = 3
_WIDTHS = {"beside": 2, "backward": _SIZE}
"""How many elements each step of the second input has, by how it is read."""


def bidirectional_lstm(
    steps: int = 4,
    *,
    batch: int = 2,
    merged: bool = True,
    time_major: bool = False,
    coupled: bool = False,
    peepholes: bool = False,
    projected: int = 0,
    clip: float = 0.0,
    other: str = "",
) -> Case:
    """A layer of 4 units forward and as many backward.

    Args:
        steps: The number of steps.
        batch: The number of samples.
        merged: Whether both directions are one output.
        time_major: Whether the steps come before the batch.
        coupled: Whether the input gate is what the forget gate leaves.
        peepholes: Whether gates see the cells.
        projected: The number of elements that states are projected to; 0 for no projection.
        clip: Where cells are cut; 0 for nowhere.
        other: Whether a second input is read "beside" the first, or "backward" alone; empty for none.
    """
    net = Net()
    shape = (steps, batch) if time_major else (batch, steps)
    inputs, states = [net.input((*shape, _SIZE))], []
    second = net.input((*shape, _WIDTHS[other])) if other else -1

    def each(*sizes: int) -> list[int]:
        return [-1 if coupled else net.weight(*sizes), *(net.weight(*sizes) for _ in range(3))]

    units = 4
    out = projected or units
    for _ in range(2):
        inputs += [*each(units, _SIZE), *each(units, out)]
        inputs += [net.weight(units) if peepholes and not (coupled and not i) else -1 for i in range(3)]
        inputs += [*each(units), net.weight(out, units) if projected else -1, -1]
        states += [net.tensor((batch, length), variable=True) for length in (out, units)]
    inputs += [*states, second]
    for _ in range(2):
        inputs += each(units, _WIDTHS[other]) if other == "beside" else [-1] * 4
    fields: dict[str, Any] = {"FusedActivationFunction": TANH, "CellClip": clip, "TimeMajor": time_major}
    return _outputs(
        net,
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        inputs,
        [(*shape, out)] * 2,
        "BidirectionalSequenceLSTMOptions",
        fields | {"MergeOutputs": merged},
    )


def _lstm(name: str, steps: int = 4, **fields: Any) -> None:
    ZOO[f"bidirectional_lstm_{name}"] = lambda: bidirectional_lstm(steps, **fields)


def _rnn(name: str, activation: int, *, merged: bool, time_major: bool = False, other: str = "") -> None:
    def make() -> Case:
        net = Net()
        shape = (5, 2) if time_major else (2, 5)
        inputs = [net.input((*shape, _SIZE))]
        second = net.input((*shape, _WIDTHS[other])) if other else -1
        for units in (4, 6):
            inputs += [net.weight(units, _SIZE), net.weight(units, units, spread=0.5), net.weight(units)]
            inputs.append(net.tensor((2, units), variable=True))
        inputs.append(second)
        inputs += [net.weight(units, _WIDTHS[other]) if other == "beside" else -1 for units in (4, 6)]
        fields = {"FusedActivationFunction": activation, "TimeMajor": time_major, "MergeOutputs": merged}
        options = "BidirectionalSequenceRNNOptions"
        shapes = [(*shape, units) for units in (4, 6)]
        return _outputs(net, "BIDIRECTIONAL_SEQUENCE_RNN", inputs, shapes, options, fields)

    ZOO[f"bidirectional_rnn_{name}"] = make


def _outputs(
    net: Net,
    kind: str,
    inputs: list[int],
    shapes: list[tuple[int, ...]],
    options: str,
    fields: dict[str, Any],
) -> Case:
    """Close a file with a layer of one or two outputs."""
    if fields["MergeOutputs"]:
        width = sum(shape[-1] for shape in shapes)
        return net.case(net.op(kind, inputs, (*shapes[0][:-1], width), "float32", options, fields))
    outputs = [net.tensor(shape) for shape in shapes]
    net.op_of(kind, inputs, outputs, options, fields)
    return net.case(*outputs)


# Of several samples that come first, the interpreter merges other numbers at each call.
_lstm("merged", batch=1)
_lstm("of_two_outputs", merged=False)
_lstm("with_steps_first", time_major=True)
_lstm("without_input_gate", batch=1, coupled=True)
_lstm("with_peepholes", peepholes=True, merged=False)
_lstm("with_projection", batch=1, projected=2)
_lstm("with_cells_cut", 12, time_major=True, clip=0.4)
_lstm("of_two_inputs", other="beside", merged=False)
_lstm("of_two_inputs_without_input_gate", batch=1, other="beside", coupled=True)
_lstm("backward_of_a_second_input", batch=1, other="backward")
_rnn("merged", TANH, merged=True)
_rnn("relu_of_two_outputs_with_steps_first", RELU, merged=False, time_major=True)
_rnn("of_two_inputs", TANH, merged=True, other="beside")
_rnn("backward_of_a_second_input", TANH, merged=False, time_major=True, other="backward")
_rnn("with_a_second_input_ignored", TANH, merged=True, other="backward")
