"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx_models import GraphBuilder

from onnx_zoo.cases import case

STEPS, BATCH, INPUTS = 5, 2, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    g: GraphBuilder,
    kind: str,
    *more: str,
    hidden: int = 20,
    directions: int = 1,
    bias: bool = True,
    x: str | None = None,
    **attributes: Any,
) -> list[str]:
    """Add a layer with all of its outputs."""
    gates = GATES[kind] * hidden
    x = x or g.input("x", [STEPS, BATCH, INPUTS])
    weights = [g.weight(directions, gates, INPUTS), g.weight(directions, gates, hidden)]
    b = g.weight(directions, 2 * gates) if bias else ""
    outputs = g.node(
        kind, x, *weights, b, *more, hidden_size=hidden, outputs=3 if kind == "LSTM" else 2, **attributes
    )
    return list(outputs)


def states(g: GraphBuilder, hidden: int = 20, directions: int = 1, count: int = 2) -> list[str]:
    return [g.input(f"s{i}", [directions, BATCH, hidden]) for i in range(count)]


@case()
def lstm(g: GraphBuilder, v: int) -> Any:
    return layer(g, "LSTM")


@case()
def lstm_wide(g: GraphBuilder, v: int) -> Any:
    """Of whole vectors, more columns than a tile has, and more sequences than are summed at once."""
    return layer(g, "LSTM", bias=False, hidden=32, x=g.input("x", [STEPS, 6, INPUTS]))


@case()
def lstm_shared(g: GraphBuilder, v: int) -> Any:
    """So large that threads share a step's products."""
    return layer(g, "LSTM", hidden=128, x=g.input("x", [STEPS, 9, INPUTS]))


@case()
def lstm_both_ways(g: GraphBuilder, v: int) -> Any:
    return layer(
        g, "LSTM", "", *states(g, directions=2), g.weight(2, 60), directions=2, direction="bidirectional"
    )


@case()
def lstm_unusual(g: GraphBuilder, v: int) -> Any:
    return layer(
        g,
        "LSTM",
        direction="reverse",
        clip=0.2,
        input_forget=1,
        activations=["HardSigmoid", "Affine", "LeakyRelu"],
        activation_alpha=[0.3, 0.7, 0.1],
        activation_beta=[0.4, 0.1],
    )


@case()
def lstm_lengths(g: GraphBuilder, v: int) -> Any:
    lengths = g.constant(np.array([0, 3], np.int32))
    return layer(g, "LSTM", lengths, *states(g, directions=2), directions=2, direction="bidirectional")


@case()
def lstm_lengths_as_input(g: GraphBuilder, v: int) -> Any:
    return layer(g, "LSTM", g.input("lengths", [BATCH], TensorProto.INT32))


@case()
def lstm_last_alone(g: GraphBuilder, v: int) -> Any:
    return layer(g, "LSTM")[1]


@case()
def gru(g: GraphBuilder, v: int) -> Any:
    return layer(g, "GRU", "", *states(g, count=1))


@case()
def gru_reset_after(g: GraphBuilder, v: int) -> Any:
    lengths = g.constant(np.array([5, 2], np.int32))
    both = {"directions": 2, "direction": "bidirectional"}
    return layer(g, "GRU", lengths, linear_before_reset=1, hidden=32, clip=0.5, **both)


@case()
def rnn(g: GraphBuilder, v: int) -> Any:
    return layer(g, "RNN", activations=["Relu"])


@case()
def rnn_activations(g: GraphBuilder, v: int) -> Any:
    outputs = []
    for number, name in enumerate(["Softsign", "ScaledTanh", "ThresholdedRelu", "Sigmoid"]):
        x = g.input(f"x{number}", [STEPS, BATCH, INPUTS])
        numbers = {"activation_alpha": [0.6]} if name in ("ScaledTanh", "ThresholdedRelu") else {}
        numbers |= {"activation_beta": [0.8]} if name == "ScaledTanh" else {}
        outputs += layer(g, "RNN", x=x, activations=[name], **numbers)
    return outputs


@case()
def lstm_computed_weights(g: GraphBuilder, v: int) -> Any:
    hidden = 20
    shapes = [(2, 4 * hidden, INPUTS), (2, 4 * hidden, hidden), (2, 8 * hidden), (2, 3 * hidden)]
    w, r, b, p = (g.node("Tanh", g.input(f"w{i}", list(shape))) for i, shape in enumerate(shapes))
    x = g.input("x", [STEPS, BATCH, INPUTS])
    both = {"hidden_size": hidden, "direction": "bidirectional"}
    return list(g.node("LSTM", x, w, r, b, "", "", "", p, outputs=3, **both))


@case()
def gru_computed_weights(g: GraphBuilder, v: int) -> Any:
    hidden = 16
    shapes = [(1, 3 * hidden, INPUTS), (1, 3 * hidden, hidden), (1, 6 * hidden)]
    weights = [g.input(f"w{i}", list(shape)) for i, shape in enumerate(shapes)]
    x = g.input("x", [STEPS, BATCH, INPUTS])
    return list(g.node("GRU", x, *weights, outputs=2, hidden_size=hidden, linear_before_reset=1))
