"""A model's name as a part of file names."""

from __future__ import annotations

import re

_ENDS = (".onnx", ".tflite")


def file_stem(name: str) -> str:
    """Return a file name without its end, safe everywhere, for a model's name."""
    end = file_end(name)
    stem = name[: -len(end)] if name.lower().endswith(end) else name
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:60]
    return stem or "model"


def file_end(name: str) -> str:
    """Return how the file of a model of this name ends: as the name does, where that says a format."""
    return next((end for end in _ENDS if name.lower().endswith(end)), _ENDS[0])
