"""Read bound values from text, for the command and the API, and write options for messages: ``sr=16000``, ``scales=1.5,2``, ``matrix=[[1,2],[3,4]]``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload.binding import Binding, Value, read_value, value_to_json

_MAX_CHARACTERS = 200_000
_MAX_SHOWN = 500
_FORM = "name=16000, name=true, name=1.5,2 or name=[[1,2],[3,4]]"


def parse_values(texts: Sequence[str]) -> dict[str, Value]:
    """Read ``name=value`` texts. A value is a number, true, false, numbers with commas, or JSON lists of them.

    A name may contain any characters, also ``=``.

    Raises:
        InvalidInputError: bad-value.
    """
    values: dict[str, Value] = {}
    for text in texts:
        name, equals, given = text.rpartition("=")
        if not equals or not name or not given.strip():
            raise InvalidInputError(f"value {clean(text, 80)!r} is not of the form {_FORM}", code="bad-value")
        if name in values:
            raise InvalidInputError(
                f"input {clean(name, 60)!r} has two values", code="bad-value", input=clean(name)
            )
        values[name] = read_value(name, _parsed(name, given.strip()))
    return values


def option_line(binding: Binding) -> str:
    """Return a binding as the command's options, on one line, to be pasted into a shell or the form."""
    words = [("--shape", f"{name}={','.join(map(str, shape))}") for name, shape in binding.shapes.items()]
    words += [
        ("--value", f"{name}={json.dumps(value_to_json(value), separators=(',', ':'))}")
        for name, value in binding.values.items()
    ]
    return " ".join(f"{option} {shlex.quote(clean(word, _MAX_SHOWN))}" for option, word in words)


def _parsed(name: str, given: str) -> Any:
    text = given.lower() if given.lower() in ("true", "false") else given
    if "," in text and not text.startswith("["):
        text = f"[{text}]"
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInputError(
            f"the value of input {clean(name, 60)!r} cannot be read: {clean(given, 60)!r} is not of the form {_FORM}",
            code="bad-value",
            input=clean(name),
        ) from None
