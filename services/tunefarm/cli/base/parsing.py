"""Reads what users type into options."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Read ``name=1,3,224,224`` texts.

    Raises:
        InvalidInputError: If a text is not like that, a dimension is not above zero, or a name comes twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, equals, dims = text.rpartition("=")
        try:
            shape = tuple(int(dim) for dim in dims.replace("x", ",").split(","))
        except ValueError:
            shape = ()
        if not equals or not name or not shape:
            raise InvalidInputError(
                f"--shape {clean(text)} cannot be read: write it like x=1,3,224,224", code="bad-shape"
            )
        if any(dim < 1 for dim in shape):
            raise InvalidInputError(
                f"--shape {clean(text)}: every dimension must be above zero", code="bad-shape", input=name
            )
        if name in shapes:
            raise InvalidInputError(f"--shape gives input {clean(name)} twice", code="bad-shape", input=name)
        shapes[name] = shape
    return shapes
