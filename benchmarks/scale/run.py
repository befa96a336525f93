"""Measure trials per second of farms with 1 to 64 replayed devices, and their cost.

    python -m benchmarks.scale.run lines.jsonl [--devices 1 2 4 8 16 32 64] [--database sqlite] [--watch 30]
    python -m benchmarks.scale.run lines.jsonl --table benchmarks/results/scale.md

A farm is real but for its devices: a Valkey, SQLite or PostgreSQL, an API with its reconciler, Celery workers with one
child per device and one to spare. Its devices replay trials of ResNet-18 that were recorded (`benchmarks.scale.record`), each
for as long as it took. The farm begins with the fewest devices and grows; each cell is a line in the file, and of several
lines of a cell the last one counts.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks.scale.measure import Asked, measure_cells
from benchmarks.scale.record import RECORDING, load_recording
from benchmarks.scale.table import make_table
from benchmarks.search import json_lines


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    if options.table is not None:
        report = make_table(json_lines.load(options.lines))
        options.table.write_text(report, encoding="utf-8")
        print(report)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the farm is ended on the way out
    cells = [
        Asked(
            database=options.database,
            devices=devices,
            jobs=options.jobs or devices,
            tuner=options.tuner,
            scale=options.scale,
            warm_sec=options.warm,
            watch_sec=options.watch,
        )
        for devices in sorted(options.devices)
    ]
    began = time.monotonic()
    for cell in measure_cells(cells, load_recording(options.recording)):
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        line = {**cell.to_json(), "made_at": time.time(), "noisy": options.noisy, "nice": nice}
        json_lines.append(options.lines, line)
        print(
            f"{cell.asked.devices} devices, {cell.asked.jobs} jobs: {cell.per_sec:.2f} trials/s,"
            f" {cell.trial_sec:.3f} s each ({cell.recorded_sec:.3f} recorded), idle {cell.idle:.0%},"
            f" elsewhere {cell.elsewhere:.0%}; after {time.monotonic() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lines", type=Path, help="file of results, one JSON object a line")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--jobs", type=int, help="jobs that share the devices (default: one per device)")
    parser.add_argument(
        "--tuner", default="random", help="(default: %(default)s: the farm is measured, not a tuner)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="what recorded seconds are multiplied by")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds before the clock starts")
    parser.add_argument("--watch", type=float, default=30.0, help="seconds on the clock")
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--noisy", action="store_true", help="note that others used the machine meanwhile")
    parser.add_argument("--table", type=Path, help="measure nothing; write the table of the lines here")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
