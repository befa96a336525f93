"""Draw the results of `compare`: the best kernel over the seconds, of stock MetaSchedule and of tunefarm.

    python -m benchmarks.search.plot out/compare.jsonl docs/images/search.svg

Each line is a median over tasks and seeds of throughput relative to what stock MetaSchedule had after its 64 trials on the
same task and seed; before its first kernel a search has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import log10
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

from benchmarks.search import json_lines
from benchmarks.search.compare_table import SideRun, side_runs

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 400, 64, 44, 120, 52
SECONDS = (1, 2, 5, 10, 20, 50, 100, 200)
COLOURS = {"stock": "#d55e00", "random": "#888888", "ga": "#009e73", "xgb": "#0072b2"}
POINTS = 120


def curve(runs: Sequence[SideRun], stock_sec: dict[tuple[str, int], float]) -> list[tuple[float, float]]:
    """Return (seconds, median share of stock's throughput) over time."""
    first, last = SECONDS[0], SECONDS[-1]
    points = []
    for i in range(POINTS + 1):
        sec = first * (last / first) ** (i / POINTS)
        shares = [_share(run, stock_sec[run.task, run.seed], sec) for run in runs]
        points.append((sec, median(shares)))
    return points


def _share(run: SideRun, stock_sec: float, sec: float) -> float:
    costs = [cost for at, _, cost in run.incumbents if at <= sec]
    return stock_sec / costs[-1] if costs else 0.0


def draw(runs: Sequence[SideRun]) -> str:
    """Return an SVG."""
    stock_sec = {
        (run.task, run.seed): run.final_sec
        for run in runs
        if run.side == "stock" and run.final_sec is not None
    }
    compared = [run for run in runs if (run.task, run.seed) in stock_sec]
    curves = {
        side: curve([run for run in compared if run.side == side], stock_sec)
        for side in COLOURS
        if any(run.side == side for run in compared)
    }
    top = max(share for points in curves.values() for _, share in points) * 1.08
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" role="img">',
        "<title>Throughput of the best kernel so far, over seconds of search</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15">Best kernel so far, relative to stock MetaSchedule after 64 trials</text>',
    ]
    for sec in SECONDS:
        x = _x(sec)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{sec}</text>')
    for tenth in range(0, int(top * 10) + 1, 2):
        y = _y(tenth / 10, top)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:.1f}×</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        "seconds on one core (logarithmic)</text>"
    )
    for side, points in curves.items():
        line = " ".join(f"{_x(sec):.1f},{_y(share, top):.1f}" for sec, share in points if share > 0)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[side]}" stroke-width="2.5"/>')
    parts += _labels({side: points[-1][1] for side, points in curves.items()}, top)
    return "\n".join([*parts, "</svg>", ""])


def _labels(ends: dict[str, float], top: float) -> list[str]:
    """Return the lines' names at their right ends, moved apart where they would overlap."""
    labels = []
    lowest = 0.0
    for side, share in sorted(ends.items(), key=lambda item: -item[1]):
        lowest = max(_y(share, top) + 4, lowest + 16)
        labels.append(
            f'<text x="{WIDTH - RIGHT + 8}" y="{lowest:.1f}" fill="{COLOURS[side]}">'
            f"{escape(side)} {share:.2f}×</text>"
        )
    return labels


def _x(sec: float) -> float:
    span = log10(SECONDS[-1] / SECONDS[0])
    return LEFT + (WIDTH - LEFT - RIGHT) * log10(sec / SECONDS[0]) / span


def _y(share: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share / top


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    options.output.write_text(draw(side_runs(json_lines.load(options.results))), encoding="utf-8")
