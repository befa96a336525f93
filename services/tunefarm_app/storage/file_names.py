"""File names that are made of a model's name."""

from __future__ import annotations

import re

_MODEL_FILE_ENDS = (".onnx", ".tflite")


def file_stem(name: str) -> str:
    """Return a model's name as a file name without extension, safe on every system."""
    end = file_end(name)
    stem = name[: -len(end)] if name.lower().endswith(end) else name
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:60]
    return stem or "model"


def file_end(name: str) -> str:
    """Return the file name extension for a model of this name: the name's own if it is a format's, else ``.onnx``."""
    return next((end for end in _MODEL_FILE_ENDS if name.lower().endswith(end)), _MODEL_FILE_ENDS[0])
