"""The bar on a job's page that shows where its time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tunefarm_text.trace_words import trace_words

_WIDTH = 1000.0
_LEAST_SHARE = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPart:
    """A piece of the bar: what the time went to, and where it is drawn (of 1,000 units)."""

    kind: str
    words: str
    sec: float
    share: float
    x: float
    width: float


def bar_parts(seconds: Mapping[str, float]) -> list[BarPart]:
    """Return the pieces of the bar, the longest first. What would be too small to see is left out."""
    total = sum(seconds.values())
    parts: list[BarPart] = []
    x = 0.0
    for kind, sec in sorted(seconds.items(), key=lambda item: -item[1]):
        share = sec / total if total else 0.0
        if share < _LEAST_SHARE:
            continue
        width = _WIDTH * share
        parts.append(
            BarPart(
                kind=kind,
                words=trace_words(kind),
                sec=sec,
                share=share,
                x=round(x, 1),
                width=round(width, 1),
            )
        )
        x += width
    return parts
