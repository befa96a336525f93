"""Write the contest's table, and its picture.

    python -m benchmarks.contest.table out/contest.jsonl [...]    # results/contest.md, docs/images/contest.svg
    python -m benchmarks.contest.table out/contest.jsonl --output - --picture -

Of each network, number of threads and minutes the last line counts.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contest.picture import draw
from benchmarks.contest.run import BFLOAT16, is_disturbed, key_of
from benchmarks.search import json_lines
from benchmarks.search.markdown import table

RESULTS = Path(__file__).parents[1] / "results" / "contest.md"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "contest.svg"
FLOAT32 = ("onnxruntime", "onnxruntime_still", "openvino", "litert", "torch_compile")
"""The runtimes that compute in float32 as we do."""
COLUMNS = {
    "artifact": "tunefarm",
    BFLOAT16: "tunefarm, bfloat16",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO, float32",
    "openvino_default": "OpenVINO as it comes",
    "litert": "LiteRT",
    "torch_compile": "torch.compile",
}
NOTE = (
    "Milliseconds an inference, medians; each runtime in a process of its own, timed in turns on random inputs. `of the best` is tunefarm's "
    "time as a share of the fastest float32 runtime's, the median of the rounds' ratios: below 1 tunefarm is faster. ONNX Runtime is the "
    "faster of its two settings (threads that wait, or that sleep), and runs a TFLite file as the ONNX model that tunefarm reads it as. "
    "OpenVINO as it comes computes in bfloat16 where the CPU can, which of the others only `tunefarm, bfloat16` does: an untuned artifact "
    "compiled with `precision=bfloat16`, whose time is compared with OpenVINO's as it comes."
)


def best_float32(line: Mapping[str, Any]) -> str:
    """Return the fastest float32 runtime of a line, by its median."""
    return min(
        (kind for kind in FLOAT32 if kind in line["latency_ms"]), key=lambda kind: line["latency_ms"][kind]
    )


def ratio(line: Mapping[str, Any], rival: str | None = None, own: str = "artifact") -> float:
    """Return tunefarm's time as a share of a rival's, the best float32 runtime by default: the median over the rounds."""
    ours, its = (line["samples_ms"][kind] for kind in (own, rival or best_float32(line)))
    return median(our / other for our, other in zip(ours, its, strict=False))


def make_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the page."""
    last = list({key_of(line): line for line in lines if line.get("kind") == "contest"}.values())
    timed = counted(last)
    if not timed:
        return "# The contest\n\nNothing is finished yet."
    ways = sorted({(line["minutes"], line["threads"]) for line in timed})
    by_way = {way: [line for line in timed if (line["minutes"], line["threads"]) == way] for way in ways}
    parts = ["# The contest: networks of the corpus against every runtime", NOTE, _where(timed)]
    parts.append(
        table(
            (
                "search",
                "threads",
                "networks",
                "of the best, geometric mean",
                "slowest",
                "ahead",
                "of OpenVINO as it comes",
                "bfloat16 of OpenVINO as it comes",
                "slowest",
            ),
            [_summary(way, group) for way, group in by_way.items()],
        )
    )
    for (minutes, threads), group in by_way.items():
        parts.append(f"## {_searched(minutes)}, {threads} thread{'s' if threads > 1 else ''}")
        ordered = sorted(group, key=ratio, reverse=True)
        present = [kind for kind in COLUMNS if any(kind in line["latency_ms"] for line in group)]
        head = ["network", *(COLUMNS[kind] for kind in present), "the best", "of the best"]
        if BFLOAT16 in present:
            head.append("bfloat16 of OpenVINO as it comes")
        parts.append(table(head, [_row(line, present) for line in ordered]))
    disturbed = [line for line in last if is_disturbed(line)]
    if disturbed:
        names = ", ".join(f"{line['network']} ({line['threads']}, {ratio(line):.2f})" for line in disturbed)
        parts.append(
            "## Timed beside other work\n\nNot counted, to be timed again: ONNX Runtime's waiting threads took over 1.25 times as long as its "
            "sleeping ones, or our calls from Python a third more or less than our runs. With threads and share of the best as timed: "
            f"{names}."
        )
    refused = [line for line in last if "refused" in line]
    if refused:
        parts.append("## Not timed")
        rows = [
            (line["network"], str(line["threads"]), f"{line['minutes']:g}", line["refused"][:300])
            for line in refused
        ]
        parts.append(table(("network", "threads", "minutes", "why"), rows))
    return "\n\n".join(parts)


def counted(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the lines that were timed without other work beside them."""
    return [line for line in lines if "latency_ms" in line and not is_disturbed(line)]


def _summary(way: tuple[float, int], lines: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    ratios = [ratio(line) for line in lines]
    beside = [line for line in lines if "openvino_default" in line["samples_ms"]]
    of_default = [ratio(line, "openvino_default") for line in beside]
    of_bfloat16 = [_ratio_in_bfloat16(line) for line in beside if BFLOAT16 in line["samples_ms"]]
    ahead = sum(value < 1 for value in ratios)
    return (
        _searched(way[0]),
        str(way[1]),
        str(len(lines)),
        f"{geometric_mean(ratios):.2f}",
        f"{max(ratios):.2f}",
        f"{ahead} of {len(ratios)}",
        f"{geometric_mean(of_default):.2f}" if of_default else "–",
        f"{geometric_mean(of_bfloat16):.2f}" if of_bfloat16 else "–",
        f"{max(of_bfloat16):.2f}" if of_bfloat16 else "–",
    )


def _ratio_in_bfloat16(line: Mapping[str, Any]) -> float:
    return ratio(line, "openvino_default", BFLOAT16)


def _row(line: Mapping[str, Any], present: Sequence[str]) -> tuple[str, ...]:
    latency = dict(line["latency_ms"])
    if "onnxruntime_still" in latency:
        latency["onnxruntime"] = min(latency["onnxruntime"], latency["onnxruntime_still"])
    cells = [f"{latency[kind]:.3g}" if kind in latency else "–" for kind in present]
    best = best_float32(line).removesuffix("_still")
    cells += [COLUMNS[best].removesuffix(", float32"), f"{ratio(line):.2f}"]
    if BFLOAT16 in present:
        both = {BFLOAT16, "openvino_default"} <= latency.keys()
        cells.append(f"{_ratio_in_bfloat16(line):.2f}" if both else "–")
    return (line["network"], *cells)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _searched(minutes: float) -> str:
    return f"{minutes:g} min of search" if minutes else "untuned"


def _where(lines: Sequence[Mapping[str, Any]]) -> str:
    commits = Counter(line["machine"]["commit"] for line in lines)
    counts = ", ".join(f"{name} ({count})" for name, count in commits.most_common())
    return f"{lines[-1]['machine']['cpu']}. Commits (lines): {counts}."


def main() -> None:
    """Write the page and the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=RESULTS, help="- for the terminal")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="- for none")
    options = parser.parse_args()
    lines = [line for path in options.results for line in json_lines.load(path)]
    page = make_table(lines) + "\n"
    if str(options.output) == "-":
        sys.stdout.write(page)
    else:
        options.output.write_text(page, encoding="utf-8")
    if str(options.picture) != "-":
        last = {key_of(line): line for line in lines if line.get("kind") == "contest"}.values()
        options.picture.write_text(draw(counted(last)), encoding="utf-8")


if __name__ == "__main__":
    main()
