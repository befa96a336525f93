"""Print the table of what `benchmarks.corpus.run` wrote.

    python -m benchmarks.corpus.table out/corpus.jsonl [...]       # into benchmarks/results/corpus.md
    python -m benchmarks.corpus.table out/corpus.jsonl --output -  # print it

Of each network the last line counts.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpus.listing import Network, read_corpus
from benchmarks.corpus.run import last_lines
from benchmarks.corpus.way import LIBRARIES, Status
from benchmarks.search import json_lines
from benchmarks.search.markdown import table

RESULTS = Path(__file__).parents[1] / "results" / "corpus.md"
COMMANDS = """\
```sh
python -m benchmarks.corpus.run --output out/corpus.jsonl      # --torch-python PYTHON for the architectures
python -m benchmarks.corpus.table out/corpus.jsonl
```"""
NOTE = (
    "Each network is imported, its tasks are extracted, it is compiled without records, and its outputs are compared with ONNX Runtime's "
    "(`right`). Then the artifact and the runtimes are timed in turns, each in a process of its own: milliseconds an inference, medians. "
    "The ratio (below 1 is faster than ONNX Runtime) is the median of the rounds' ratios. ONNX Runtime runs a TFLite file as the "
    "ONNX model that tunefarm reads it as. What was run with `--no-timing` has no times. `seconds` are those of import, extraction and compile together."
)
_HEAD = (
    "network",
    "kind",
    "MB",
    "tasks",
    "seconds",
    "untuned",
    "ONNX Runtime",
    "OpenVINO",
    "LiteRT",
    "ratio",
)
_MAX_MESSAGE = 400


def make_table(lines: Sequence[Mapping[str, Any]], corpus: Sequence[Network]) -> str:
    """Return the page: totals, what came through, and what did not with its reasons."""
    last = last_lines(lines)
    known = [(network, last[network.name]) for network in corpus if network.name in last]
    tried = [(network, line) for network, line in known if line["status"] != Status.UNAVAILABLE]
    right = [(network, line) for network, line in tried if line["status"] == Status.RIGHT]
    others = [(network, line) for network, line in known if line["status"] != Status.RIGHT]
    if not known:
        return "# Networks as people have them\n\nNothing is finished yet."
    parts = ["# Networks as people have them", COMMANDS, NOTE, _where([line for _, line in known])]
    parts.append(_totals(corpus, known, tried))
    parts += ["## Compiled and right", table(_HEAD, [_row(*pair) for pair in right])]
    ratios = [line["ratio"] for _, line in right if line.get("ratio")]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        faster = sum(ratio <= 1.0 for ratio in ratios)
        parts.append(
            f"Untuned against ONNX Runtime: geometric mean of the ratios {mean:.2f}; {faster} of {len(ratios)} are as fast or faster."
        )
    untimed = [f"{network.name}: {line['not_timed']}" for network, line in right if line.get("not_timed")]
    if untimed:
        parts.append("Not timed: " + "; ".join(map(_cell, untimed)) + ".")
    if others:
        head = ("network", "kind", "commit", "status", "stage", "code", "message")
        parts += ["## Did not come through", table(head, [_reason(*pair) for pair in others])]
    parts += ["## Sources", _sources(known)]
    return "\n\n".join(parts)


def _totals(
    corpus: Sequence[Network],
    known: Sequence[tuple[Network, Mapping[str, Any]]],
    tried: Sequence[tuple[Network, Mapping[str, Any]]],
) -> str:
    """Return how many came through, by where they are from."""
    groups = {
        "ONNX files": [pair for pair in tried if not pair[0].is_architecture and pair[0].suffix == ".onnx"],
        "TFLite files": [pair for pair in tried if pair[0].suffix == ".tflite"],
        "architectures of torchvision, timm and transformers": [
            pair for pair in tried if pair[0].is_architecture
        ],
        "all": list(tried),
    }
    rows = []
    for name, pairs in groups.items():
        counts = Counter(line["status"] for _, line in pairs)
        share = f"{counts[Status.RIGHT] / len(pairs):.1%}" if pairs else "–"
        rows.append([name, str(len(pairs)), *(str(counts[status]) for status in list(Status)[:-1]), share])
    head = ("", "tried", *(status.value for status in list(Status)[:-1]), "right, share")
    text = table(head, rows)
    unavailable = len(known) - len(tried)
    missing = len(corpus) - len(known)
    if unavailable or missing:
        text += (
            f"\n\nNot tried: {missing} not run yet, {unavailable} whose file could not be had. "
            "The shares are of what was tried, which is no random choice."
        )
    return text


def _row(network: Network, line: Mapping[str, Any]) -> list[str]:
    latency = line.get("latency_ms", {})
    seconds = line["seconds"]
    ratio = line.get("ratio")
    return [
        network.name,
        network.kind,
        f"{line['file_bytes'] / 1e6:.1f}",
        str(line["tasks"]),
        f"{sum(seconds.get(stage, 0.0) for stage in ('import', 'extract', 'compile')):.0f}",
        *(_ms(latency.get(kind)) for kind in ("artifact", "onnxruntime", *LIBRARIES)),
        "–" if ratio is None else f"{ratio:.2f}",
    ]


def _reason(network: Network, line: Mapping[str, Any]) -> list[str]:
    message = line["message"]
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 3] + "..."
    facts = [line["machine"]["commit"], line["status"], line["stage"], f"`{line['code']}`"]
    return [network.name, network.kind, *facts, _cell(message)]


def _sources(known: Iterable[tuple[Network, Mapping[str, Any]]]) -> str:
    packages: dict[str, tuple[Network, list[str]]] = {}
    for network, _ in known:
        packages.setdefault(network.package.name, (network, []))[1].append(network.name)
    rows = [
        [
            f"{name} {network.package.version}".strip(),
            network.package.source,
            network.package.licence,
            str(len(names)),
        ]
        for name, (network, names) in packages.items()
    ]
    return table(("package", "source", "licence", "networks"), rows)


def _where(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return where and of which commits the lines are."""
    commits = Counter(line["machine"]["commit"] for line in lines)
    machines = sorted({f"{line['machine']['cpu']}, {line['threads']} thread(s)" for line in lines})
    listed = ", ".join(f"{commit} ({count})" for commit, count in commits.most_common())
    return f"{'; '.join(machines)}. Commits (networks): {listed}."


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--output", default=str(RESULTS), help="- prints the page")
    options = parser.parse_args(arguments)
    page = make_table([line for file in options.files for line in json_lines.load(file)], read_corpus())
    if options.output == "-":
        print(page)
    else:
        Path(options.output).write_text(page + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
