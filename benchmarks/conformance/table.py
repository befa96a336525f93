"""The table of `benchmarks.conformance.run`'s outcomes, per operator: ``python -m benchmarks.conformance.table LINES``."""

from __future__ import annotations

import json
import lzma
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.search import json_lines
from benchmarks.search.markdown import table

Line = Mapping[str, Any]
RESULTS = Path(__file__).parents[1] / "results"
OUTCOMES = RESULTS / "conformance.jsonl.xz"
"""The outcome of each case, which the tests compare with."""

_NOTE = (
    "ONNX's own test cases (`onnx.backend.test.case.node`) on the whole path: checked, bound, imported, compiled untuned, run on this "
    "machine, and compared with the expected outputs within the cases' own tolerance (float16: two steps). `ONNX Runtime` is how many "
    "of an operator's cases it passes without graph optimisations, of those whose inputs and outputs are tensors that NumPy has; the other columns are of these. "
    "`bound` cases pass once the inputs that say what a node does (axes, shapes, counts) are bound to their values, as by `--value`. "
    "`_expanded` cases, where ONNX writes an operator as others, count for that operator."
)
_COMMAND = "python -m benchmarks.conformance.run --output out/conformance.jsonl"


def make_table(lines: Sequence[Line]) -> str:
    """Return the page."""
    judged = [line for line in lines if line["of_tensors"] and line["reference"] == "passes"]
    words = Counter(line["word"] for line in judged)
    passed = words["passes"] + words["passes-with-values"]
    share = passed / len(judged) if judged else 0.0
    beyond = [line for line in lines if line["of_tensors"] and line["reference"] != "passes"]
    parts = [
        "# ONNX's test cases",
        _NOTE,
        (
            f"Of {len(lines)} cases, {sum(line['of_tensors'] for line in lines)} have such tensors at their edges, and ONNX "
            f"Runtime passes {len(judged)} of these. tunefarm passes **{passed} ({share:.1%})**, refuses {words['refused']} with "
            f"an error that names the cause, gives {words['wrong']} wrong results, and fails otherwise in {words['fails']}. Of the {len(beyond)} "
            f"that ONNX Runtime does not pass, tunefarm passes {sum(is_pass(line) for line in beyond)}."
        ),
        f"Command: `{_COMMAND}`, then `python -m benchmarks.conformance.table out/conformance.jsonl`.",
        "## By operator",
        "Operators that pass whole are in the list below the table.",
        _by_operator(judged),
        f"Every case passes: {', '.join(_whole(judged))}.",
        "## Why cases are refused",
        _reasons(judged),
    ]
    differing = sorted(line["name"] for line in beyond if line["word"] in ("wrong", "fails"))
    if differing:
        parts += [
            "## Outside the tolerance where ONNX Runtime is no measure",
            "ONNX Runtime cannot run these, or its results are outside the tolerance as well.",
            table(
                ["Case", "ONNX Runtime", "tunefarm"],
                [
                    [f"`{line['name']}`", line["reference"], f"{line['word']}: {_short(line['reason'])}"]
                    for line in beyond
                    if line["name"] in differing
                ],
            ),
        ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def is_pass(line: Line) -> bool:
    """Return whether a case passes, perhaps with bound values."""
    return bool(line["word"].startswith("passes"))


def load_outcomes(path: Path = OUTCOMES) -> dict[str, Line]:
    """Return the committed outcomes by the case's name."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return {line["name"]: line for line in map(json.loads, file)}


def _by_operator(judged: Iterable[Line]) -> str:
    groups = _groups(judged)
    rows = []
    for operator, lines in sorted(groups.items()):
        words = Counter(line["word"] for line in lines)
        if words["passes"] + words["passes-with-values"] < len(lines):
            counts = [
                words["passes"],
                words["passes-with-values"],
                words["refused"],
                words["wrong"],
                words["fails"],
            ]
            rows.append([operator, len(lines), *counts])
    heads = ["Operator", "ONNX Runtime", "passes", "bound", "refused", "wrong", "fails"]
    return table(heads, [[str(cell) for cell in row] for row in rows])


def _whole(judged: Iterable[Line]) -> list[str]:
    groups = _groups(judged)
    return [f"`{name}` {len(lines)}" for name, lines in sorted(groups.items()) if all(map(is_pass, lines))]


def _groups(judged: Iterable[Line]) -> dict[str, list[Line]]:
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in judged:
        groups[line["operator"]].append(line)
    return groups


def _reasons(judged: Iterable[Line]) -> str:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in judged:
        if not is_pass(line):
            groups[line["operator"], _short(line["reason"])].append(line["name"])
    rows = [
        [operator, str(len(names)), reason, f"`{names[0]}`"]
        for (operator, reason), names in sorted(groups.items())
    ]
    return table(["Operator", "Cases", "Reason", "For example"], rows)


def _short(reason: str) -> str:
    """Return a message without the node, cut to a line."""
    text = reason.split(": ", 1)[1] if reason.startswith("TVM cannot import node") else reason
    return (text if len(text) <= 160 else f"{text[:157]}...").replace("|", "\\|")


def main(arguments: Sequence[str]) -> int:
    """Write the page and the outcomes that the tests compare with."""
    (path,) = arguments
    lines = sorted(json_lines.load(Path(path)), key=lambda line: line["name"])
    if not lines:
        sys.exit(f"{path}: no outcomes are there")
    (RESULTS / "conformance.md").write_text(make_table(lines), encoding="utf-8")
    kept = ("name", "operator", "of_tensors", "reference", "word", "code")
    with lzma.open(OUTCOMES, "wt", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(json.dumps({key: line[key] for key in kept}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
