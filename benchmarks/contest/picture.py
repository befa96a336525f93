"""Draw the contest: each network a row of dots, one for each runtime."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, ROW = 820, 230, 24, 70, 15
LEAST, MOST = 0.25, 8.0  # share of the best float32 runtime's time: what lies beyond is drawn at the edge
DOTS = {
    "openvino_default": ("OpenVINO as it comes", "#b7dfcf"),
    "onnxruntime": ("ONNX Runtime", "#d55e00"),
    "openvino": ("OpenVINO, float32", "#009e73"),
    "litert": ("LiteRT", "#cc79a7"),
    "torch_compile": ("torch.compile", "#888888"),
    "artifact": ("tunefarm", "#0072b2"),
}
"""Name and colour of each runtime, in the order in which dots are drawn: the last lies above the others."""


def draw(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return an SVG of the way (minutes of search, threads) with most networks; of two, the one with more minutes."""
    last = {(line["network"], line["threads"], line["minutes"]): line for line in lines}.values()
    counts = Counter((line["minutes"], line["threads"]) for line in last)
    minutes, threads = max(counts, key=lambda way: (counts[way], way))
    chosen = [line for line in last if (line["minutes"], line["threads"]) == (minutes, threads)]
    rows = sorted(((line["network"], _shares(line)) for line in chosen), key=lambda row: row[1]["artifact"])
    height = TOP + ROW * len(rows) + 40
    searched = f"after {minutes:g} min of search" if minutes else "untuned"
    title = f"Time of an inference as a share of the fastest float32 runtime's, {threads} thread{'s' * (threads > 1)}, {searched}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="14">{title}</text>',
        *_legend(rows),
    ]
    for share in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
        x = _x(share)
        colour = "#777777" if share == 1.0 else "#e5e5e5"
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 30}" stroke="{colour}"/>'
            f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle">{share:g}</text>'
        )
    for number, (name, shares) in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        parts += [
            f'<circle cx="{_x(shares[kind]):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
            for kind, (_, colour) in DOTS.items()
            if kind in shares
        ]
    return "\n".join([*parts, "</svg>", ""])


def _shares(line: Mapping[str, Any]) -> dict[str, float]:
    """Return each runtime's time as a share of the fastest one of those that compute in float32 and are not tunefarm."""
    latency = dict(line["latency_ms"])
    if "onnxruntime_still" in latency:
        latency["onnxruntime"] = min(latency["onnxruntime"], latency["onnxruntime_still"])
    shown = {kind: latency[kind] for kind in DOTS if kind in latency}
    best = min(ms for kind, ms in shown.items() if kind not in ("artifact", "openvino_default"))
    return {kind: ms / best for kind, ms in shown.items()}


def _legend(rows: Sequence[tuple[str, Mapping[str, float]]]) -> list[str]:
    parts, x = [], 18.0
    for kind, (name, colour) in reversed(DOTS.items()):
        if any(kind in shares for _, shares in rows):
            parts.append(f'<circle cx="{x:.1f}" cy="43" r="4.5" fill="{colour}"/>')
            parts.append(f'<text x="{x + 9:.1f}" y="47">{name}</text>')
            x += 30 + 6.2 * len(name)
    return parts


def _x(share: float) -> float:
    within = min(max(share, LEAST), MOST)
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(within / LEAST) / math.log(MOST / LEAST)
