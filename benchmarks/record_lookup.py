"""Time finding the best records of a model's tasks, by the number of records in the database.

    python -m benchmarks.record_lookup [--rows 1000 100000 1000000] [--output benchmarks/results/record_lookup.md]

The records are synthetic: 2,000 workloads on 4 targets, 2 device models and 2 toolchains, drawn with a bias, so that
some workloads have thousands of records. The query is the one that a compile step makes: `Records.best` with the 20
workloads of a model. PostgreSQL is a private server from a PyPI wheel. Each median is of 200 queries on random models,
after 20 to warm up, in one process with a pool; a query includes its transaction. Of 25 such batches the one with
the lowest median counts: other work on the machine can only add.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.scale.postgres import private_postgres
from sqlalchemy import insert, text

from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.ids import new_id
from tunefarm_db.tables import RecordRow, table_of
from tunefarm_db.unit_of_work import UnitOfWork

WORKLOADS = 2000
TASKS_PER_MODEL = 20
QUERIES = 200
BATCHES = 25
TARGETS = [
    "llvm -mcpu=znver5 -num-cores=16",
    "llvm -mcpu=skylake-avx512 -num-cores=8",
    "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu -num-cores=4",
    "cuda -arch=sm_90 -max_shared_memory_per_block=49152 -max_threads_per_block=1024 -thread_warp_size=32",
]
DEVICE_MODELS = ["model-a", "model-b"]
TOOLCHAINS = ["tvm-0.27.0.post1", "tvm-0.26.0"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--output", type=Path, help="write the table here as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder, private_postgres() as postgres:
        cells = [
            Cell(rows, make_url())
            for rows in sorted(options.rows)
            for make_url in (
                lambda: f"sqlite:///{folder}/{new_id('rec')}.db",
                lambda: postgres.new_database(new_id("rec")),
            )
        ]
        for cell in cells:
            schema.upgrade(cell.url)
            fill(cell.url, cell.rows)
            print(f"filled {cell.url.split(':', 1)[0]} with {cell.rows}", file=sys.stderr)
        # In turns, so that whatever else the machine does meets every size alike.
        for _ in range(BATCHES):
            for cell in cells:
                cell.keep_faster(measure(cell.url))
    lines = [
        "| records | SQLite median (ms) | p95 | PostgreSQL median (ms) | p95 |",
        "|---:|---:|---:|---:|---:|",
    ]
    for sqlite_cell, postgres_cell in zip(cells[::2], cells[1::2], strict=True):
        lines.append(f"| {sqlite_cell.rows:,} | {sqlite_cell} | {postgres_cell} |")
    ratios = [f"{cells[last].median / cells[first].median:.2f}×" for first, last in ((0, -2), (1, -1))]
    lines.append(f"| largest / smallest | {ratios[0]} | | {ratios[1]} | |")
    report = "\n".join(
        [
            "# Best-record lookup",
            "",
            "Finding the best records of a model with 20 tasks (`Records.best`). Aim: flat within 2×.",
            "",
            *lines,
            "",
            f"Command: `python -m benchmarks.record_lookup --rows {' '.join(map(str, options.rows))}`  ",
            (
                f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores; Python {platform.python_version()}, "
                f"SQLite {sqlite3.sqlite_version}, PostgreSQL 18, on {time.strftime('%Y-%m-%d')}."
            ),
            "",
        ]
    )
    print(report)
    if options.output:
        options.output.write_text(report)


class Cell:
    """One database of one size, and its fastest batch of queries."""

    def __init__(self, rows: int, url: str) -> None:
        self.rows = rows
        self.url = url
        self.times_ms: list[float] = []

    @property
    def median(self) -> float:
        return median(self.times_ms)

    def keep_faster(self, times_ms: list[float]) -> None:
        if not self.times_ms or median(times_ms) < self.median:
            self.times_ms = times_ms

    def __str__(self) -> str:
        p95 = sorted(self.times_ms)[int(len(self.times_ms) * 0.95)]
        return f"{self.median:.2f} | {p95:.2f}"


def fill(url: str, rows: int) -> None:
    """Store synthetic records; the first thousands are the same for every size."""
    engine = make_engine(url)
    rng = random.Random(1)
    table = table_of(RecordRow)
    for start in range(0, rows, 10_000):
        batch = [synthetic(rng) for _ in range(min(10_000, rows - start))]
        with engine.begin() as connection:
            connection.execute(insert(table), batch)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
    engine.dispose()


def synthetic(rng: random.Random) -> dict[str, object]:
    failed = rng.random() < 0.2
    cost_sec = None if failed else rng.lognormvariate(-7, 1)
    return {
        "id": new_id("rec"),
        "workload_key": workload_key(int(WORKLOADS * rng.random() ** 3)),
        "target_key": rng.choices(TARGETS, [8, 4, 2, 1])[0],
        "device_model": rng.choices(DEVICE_MODELS, [3, 1])[0],
        "toolchain": rng.choices(TOOLCHAINS, [4, 1])[0],
        "space_key": f"{rng.randrange(1 << 64):016x}",
        "config": [rng.randrange(3), [[rng.randrange(64), 4, 2, 1] for _ in range(5)] + [rng.randrange(8)]],
        "outcome": "build-error" if failed else "ok",
        "cost_sec": cost_sec,
        "samples_sec": [] if cost_sec is None else [cost_sec] * 3,
        "build_sec": 0.5,
        "measured_at": 1.8e9,
        "tuner": "xgb",
        "message": "",
        "extra": None,
    }


def workload_key(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}"


def measure(url: str) -> list[float]:
    """Return the milliseconds of each query."""
    engine = make_engine(url)
    uow = UnitOfWork(engine)
    rng = random.Random(1)
    times_ms = []
    for number in range(QUERIES + 20):
        keys = [workload_key(int(WORKLOADS * rng.random() ** 3)) for _ in range(TASKS_PER_MODEL)]
        start = time.perf_counter()
        with uow.read() as repos:
            repos.records.best(
                keys, target_key=TARGETS[0], device_model=DEVICE_MODELS[0], toolchain=TOOLCHAINS[0]
            )
        if number >= 20:
            times_ms.append((time.perf_counter() - start) * 1000)
    engine.dispose()
    return times_ms


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
