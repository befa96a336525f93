"""A model's name as a part of file names."""

from __future__ import annotations

import re


def file_stem(name: str) -> str:
    """Return a file name without its end, safe everywhere, for a model's name."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name.removesuffix(".onnx")).strip("-.")[:60]
    return stem or "model"
