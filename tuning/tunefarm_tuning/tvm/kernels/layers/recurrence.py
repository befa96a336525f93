"""What a recurrent layer computes, in one direction: `Recurrence` and the activations of its gates, as ONNX names them (opset 14)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tvm import tirx

RECURRENCES = "tunefarm.recurrences"
"""Attribute of a kernel whose states are rounded to 8 bits: its recurrences as JSON, from which it is made again for a CPU."""


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation of ONNX's, by its name there, with its parameters (alpha, beta)."""

    name: str
    parameters: tuple[float, ...] = ()

    def __call__(self, x: Any) -> Any:
        return _ACTIVATIONS[self.name][0](x, *self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A layer in one direction.

    Attributes:
        kind: ``"LSTM"`` (gates i, o, f, c), ``"GRU"`` (z, r, h) or ``"RNN"``.
        steps: Steps of the longest sequence; an expression if it is open.
        batch: Sequences; an expression if their number is open.
        activations: As ONNX orders them: of the gates, of the candidate, and of an LSTM's output.
        reverse: Whether it goes from the last step to the first.
        clip: Bound of the first activations' arguments; None for no bound.
        coupled: LSTM's ``input_forget``: the forget gate is one minus the input gate.
        reset_after: GRU's ``linear_before_reset``: the candidate's product with the state comes before the reset.
        peepholes: LSTM: gates also depend on the cell, by three more vectors.
        ragged: Each sequence has a length of its own.
        rounded: Each step's states are rounded to 8 bits before the product, as ONNX Runtime's `DynamicQuantizeLSTM` does.
        byte_lanes: Lanes of the CPU's dot product of bytes, by which rounded states are multiplied; 0 for floats.
    """

    kind: str
    steps: Any
    batch: Any
    hidden: int
    dtype: str
    activations: Sequence[Activation] = field(repr=False)
    reverse: bool = False
    clip: float | None = None
    coupled: bool = False
    reset_after: bool = False
    peepholes: bool = False
    ragged: bool = False
    rounded: bool = False
    byte_lanes: int = 0

    @property
    def gates(self) -> int:
        """Number of gates."""
        return {"LSTM": 4, "GRU": 3, "RNN": 1}[self.kind]

    @property
    def products(self) -> tuple[int, ...]:
        """Gates of each product with a state; a GRU whose reset comes first has two products."""
        return (2, 1) if self.kind == "GRU" and not self.reset_after else (self.gates,)


def to_json(cells: Sequence[Recurrence]) -> str:
    """Return the recurrences of a kernel as JSON; open sizes are null."""

    def of(cell: Recurrence) -> dict[str, Any]:
        values = {item.name: getattr(cell, item.name) for item in fields(cell)}
        values |= {name: None for name in ("steps", "batch") if not isinstance(values[name], int)}
        return values | {"activations": [[item.name, *item.parameters] for item in cell.activations]}

    return json.dumps([of(cell) for cell in cells])


def from_json(text: str) -> list[Recurrence]:
    """Return what `to_json` wrote."""
    return [
        Recurrence(
            **values
            | {"activations": [Activation(name, tuple(rest)) for name, *rest in values["activations"]]}
        )
        for values in json.loads(text)
    ]


def _like(x: Any, value: float) -> Any:
    return tirx.const(value, x.ty.dtype)


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return x * _like(x, alpha) + _like(x, beta)


def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    return tirx.max(_like(x, 0), tirx.min(_like(x, 1), _affine(x, alpha, beta)))


_ACTIVATIONS: Mapping[str, tuple[Callable[..., Any], tuple[float | None, ...]]] = {
    "Affine": (_affine, (None, None)),
    "HardSigmoid": (_hard_sigmoid, (0.2, 0.5)),
    "LeakyRelu": (lambda x, alpha: tirx.Select(x < 0, x * _like(x, alpha), x), (0.01,)),
    "Relu": (lambda x: tirx.max(x, _like(x, 0)), ()),
    "ScaledTanh": (
        lambda x, alpha, beta: tirx.tanh(x * _like(x, beta)) * _like(x, alpha),
        (None, None),
    ),
    "Sigmoid": (tirx.sigmoid, ()),
    "Softsign": (lambda x: x / (tirx.abs(x) + _like(x, 1)), ()),
    "Tanh": (tirx.tanh, ()),
    "ThresholdedRelu": (lambda x, alpha: tirx.Select(x >= _like(x, alpha), x, _like(x, 0)), (None,)),
}
ACTIVATION_DEFAULTS = {name: defaults for name, (_, defaults) in _ACTIVATIONS.items()}
"""Defaults of alpha and beta by activation; None if ONNX and ONNX Runtime differ in a default."""
