"""Shapes and parts of a network in words. Needs only Python 3.11.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def shape_text(shape: Sequence[int | None]) -> str:
    """Return a shape for people: a dimension that depends on values is a question mark."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def part_text(part: Mapping[str, Any]) -> str:
    """Return the operators of a part in words: ``2 Gather, NonMaxSuppression``."""
    return ", ".join(f"{count} {name}" if count > 1 else str(name) for name, count in part["operators"])
