"""Measure where the seconds of an artifact go, from a network's file: untuned, with records, and once more with all that is known.

    flock -x LOCK python -m benchmarks.job_seconds net.onnx [--records net.jsonl] [--runs 3] [--output benchmarks/results/job_seconds.md]

`untuned` has no records. `records` has the best kernels on record, and nothing that earlier compiles found out: a first upload to a farm
with records of another network's jobs. `again` knows what the compile before found out, and has its kernels' object code: a second upload. Each is a compile on this machine,
checked and timed as always; the medians of several runs are given, by the spans of the product's own trace.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tunefarm_tuning import compile as compile_model
from tunefarm_tuning import extract_tasks, import_model, load_records
from tunefarm_tuning.core.spans import recording, seconds_by_kind
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.workload.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of one way to an artifact, in all and by kind, and the artifact's latency."""

    way: str
    sec: float
    kinds: dict[str, float]
    latency_sec: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.job_seconds", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    records = list(load_records(options.records)) if options.records else []
    runs: list[list[Measured]] = []
    for _ in range(options.runs):
        runs.append(measure(options.model, records))
        print(render(runs), flush=True)
    if options.output:
        command = f"python -m benchmarks.job_seconds {options.model.name} --runs {options.runs}"
        options.output.write_text(f"{render(runs)}\n\nCommand: `{command}`\n", encoding="utf-8")


def measure(path: Path, records: Sequence[TuningRecord]) -> list[Measured]:
    """Return one run of all ways."""
    with recording() as log:
        began = time.time()
        model = import_model(path)
        extract_tasks(model, "host")
        ended = time.time()
    kinds = seconds_by_kind(log.spans, began, ended)
    measured = [Measured(way="import and extract", sec=ended - began, kinds=kinds, latency_sec=0.0)]
    measured.append(_compiled("untuned", model, History()))
    if records:
        with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
            first = Findings(objects=Path(folder))
            measured.append(_compiled("records", model, History(records, first)))
            known = Findings(first.noted.get, objects=Path(folder))
            measured.append(_compiled("again", model, History(records, known)))
    return measured


def _compiled(way: str, model: Model, history: History) -> Measured:
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder, recording() as log:
        began = time.time()
        artifact = compile_model(model, "host", output=Path(folder, "net.tunefarm"), history=history)
        ended = time.time()
    return Measured(
        way=way,
        sec=ended - began,
        kinds=seconds_by_kind(log.spans, began, ended),
        latency_sec=float(artifact.report["latency"]["tuned"]["median_sec"]),
    )


def render(runs: Sequence[Sequence[Measured]]) -> str:
    """Return the table: medians over runs; the columns of kinds are what each second went to."""
    names = sorted({kind for run in runs for measured in run for kind in measured.kinds})
    lines = [
        f"| Way | Seconds | {' | '.join(names)} | Latency (ms) |",
        f"|---|---:|{'---:|' * len(names)}---:|",
    ]
    for position, first in enumerate(runs[0]):
        column = [run[position] for run in runs]
        kinds = [median(measured.kinds.get(name, 0.0) for measured in column) for name in names]
        latency_ms = 1e3 * median(measured.latency_sec for measured in column)
        cells = [f"{median(measured.sec for measured in column):.1f}", *(f"{sec:.1f}" for sec in kinds)]
        lines.append(f"| {first.way} | {' | '.join(cells)} | {f'{latency_ms:.2f}' if latency_ms else ''} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
