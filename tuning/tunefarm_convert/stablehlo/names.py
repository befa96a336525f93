"""What the inputs and outputs of a converted program are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tunefarm_convert.onnx_writer import OnnxWriter

_SANE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
_KEY = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")
_PATH = re.compile(rf"\w*(?:{_KEY.pattern})*")


def edge_names(said: Sequence[str], count: int, otherwise: str, writer: OnnxWriter) -> list[str]:
    """Return a name for each input (output): what the module says of it, or its kind and number.

    JAX says ``x`` of an argument, ``params['dense']['kernel']`` of one of a tree, ``result['logits']`` of a result.
    """
    wanted = [_sane(text) for text in said] if len(said) == count else [""] * count
    counts = Counter(wanted)
    return [
        writer.unique(name if name and counts[name] == 1 else f"{otherwise}_{position}")
        for position, name in enumerate(wanted)
    ]


def _sane(text: str) -> str:
    if not _PATH.fullmatch(text):
        return ""
    head, *rest = re.split(r"(?=[.\[])", text, maxsplit=1)
    keys = ["".join(parts) for parts in _KEY.findall("".join(rest))]
    found = ".".join(part for part in ("" if head == "result" else head, *keys) if part)
    return found if _SANE.fullmatch(found) else ""
