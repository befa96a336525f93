"""`Pad` by constant widths, as Relax's operator: TVM's importer makes a kernel of it at once, which no pass can move a transpose past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from tunefarm_tuning.tvm.frontend.scope import Scope, axis_of, constant, dtype_of, fixed_shape, text

_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def convert_pad(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Pad` of floating-point tensors by constant widths; None where TVM's converter has to do it."""
    shape = fixed_shape(inputs[0])
    mode = _MODES.get(text(attributes, "mode", "constant"))
    if shape is None or mode is None or dtype_of(inputs[0]) not in ("float32", "float64"):
        return None
    found = _widths(scope, len(shape), inputs, attributes)
    if found is None:
        return None
    widths, value = found
    if any(width < 0 for width in widths):
        return None
    if mode == "reflect" and any(width >= shape[place // 2] for place, width in enumerate(widths) if width):
        return None
    if mode == "replicate" and 0 in shape:
        return None
    return relax.op.nn.pad(inputs[0], widths, mode, value)


def _widths(
    scope: Scope, rank: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> tuple[list[int], float] | None:
    """Return how wide to pad each axis, before and after it, and with what; None where that is no constant."""
    given = [*inputs[1:], None, None, None]
    if scope.opset < 11:
        pads, axes = attributes.get("pads"), None
        value = float(attributes.get("value", 0.0))
    else:
        padded, filled, which = given[:3]
        pads, value = constant(padded), 0.0
        if filled is not None:
            number = constant(filled)
            if number is None or number.size != 1:
                return None
            value = float(number.reshape(-1)[0])
        axes = constant(which)
        if which is not None and axes is None:
            return None
    if pads is None:
        return None
    places = [axis_of(int(axis), rank) for axis in axes] if axes is not None else list(range(rank))
    if len(pads) != 2 * len(places):
        return None
    widths = [0] * (2 * rank)
    for at, place in enumerate(places):
        widths[2 * place] = int(pads[at])
        widths[2 * place + 1] = int(pads[len(places) + at])
    return widths, value


CONVERTERS: dict[str, Callable[[Scope, Sequence[Any], dict[str, Any]], Any]] = {"Pad": convert_pad}
"""Returns None where TVM's own converter is right."""
