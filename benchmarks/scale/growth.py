"""Measure how large a database grows, and how long its queries take after 10⁶ trials.

    python -m benchmarks.scale.growth [--rows 10000 1000000] [--output benchmarks/results/growth.md]

Both databases are filled with the same synthetic jobs (`benchmarks.scale.fill`), then everything is asked that a round, the reconciler,
the API's lists and the metrics ask (`benchmarks.scale.questions`), each in a transaction of its own. Of 5 batches of
queries the one with the lowest median counts: other work on the machine can only add. With `--explain` the plans of the
slow ones follow.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.scale.fill import Filled, fill, look
from benchmarks.scale.postgres import private_postgres
from benchmarks.scale.questions import Question, questions
from benchmarks.scale.record import RECORDING, load_recording
from sqlalchemy import event, text

from tunefarm_db.engine import make_engine
from tunefarm_db.ids import new_id
from tunefarm_db.schema import upgrade
from tunefarm_db.unit_of_work import UnitOfWork

BATCHES, BATCH_SEC, SLOW_MS = 5, 0.5, 50.0


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    tasks = load_recording(options.recording)
    with _databases(options) as urls:
        seen: dict[tuple[str, int], dict[str, float]] = {}
        sizes: dict[tuple[str, int], float] = {}
        for (kind, rows), url in urls.items():
            upgrade(url)
            filled = look(url)
            if filled is None:
                fill(url, rows, tasks)
                filled = look(url)
            assert filled is not None
            print(f"{kind}: {filled.records} records", file=sys.stderr, flush=True)
            seen[kind, rows] = ask_all(url, filled, options)
            sizes[kind, rows] = _bytes(url) / filled.records
    report = render(seen, sizes, options)
    print(report)
    if options.output:
        options.output.write_text(report, encoding="utf-8")
    return 0


@contextmanager
def _databases(options: argparse.Namespace) -> Iterator[dict[tuple[str, int], str]]:
    """Yield where the databases are, by kind and number of trials."""
    if options.url:
        yield {(url.partition(":")[0], options.rows[-1]): url for url in options.url}
        return
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder, private_postgres() as server:
        urls: dict[tuple[str, int], str] = {}
        for rows in options.rows:
            urls["sqlite", rows] = f"sqlite:///{folder}/{rows}.db"
            urls["postgresql", rows] = server.new_database(new_id("rec"))
        yield urls


def ask_all(url: str, filled: Filled, options: argparse.Namespace) -> dict[str, float]:
    """Return the milliseconds of each query, by ``who asks: name``."""
    engine = make_engine(url)
    uow = UnitOfWork(engine)
    times_ms: dict[str, float] = {}
    for who, queries in questions(filled).items():
        for name, question in queries.items():
            times_ms[f"{who}: {name}"] = time_ms = _median_ms(uow, question, options.batch_sec)
            if options.explain and time_ms > SLOW_MS:
                print(f"\n{name}: {time_ms:.1f} ms\n{_plans(uow, question)}", file=sys.stderr, flush=True)
    engine.dispose()
    return times_ms


def _median_ms(uow: UnitOfWork, question: Question, batch_sec: float) -> float:
    medians = []
    for _ in range(BATCHES):
        times_ms: list[float] = []
        until = time.monotonic() + batch_sec
        while len(times_ms) < 3 or (time.monotonic() < until and len(times_ms) < 200):
            began = time.perf_counter()
            with uow.read() as repos:
                question(repos)
            times_ms.append((time.perf_counter() - began) * 1000)
        medians.append(median(times_ms))
        if sum(times_ms) > 10_000:
            break
    return min(medians)


def _plans(uow: UnitOfWork, question: Question) -> str:
    """Return how the database answers each query of a question."""
    seen: list[tuple[str, object]] = []

    def note(*event: object) -> None:
        if str(event[2]).startswith("SELECT"):
            seen.append((str(event[2]), event[3]))

    event.listen(uow.engine, "before_cursor_execute", note)
    with uow.read() as repos:
        question(repos)
    event.remove(uow.engine, "before_cursor_execute", note)
    explain = "EXPLAIN ANALYZE " if uow.engine.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
    plans = []
    with uow.engine.connect() as connection:
        for query, parameters in seen[:3]:
            rows = connection.exec_driver_sql(explain + query, parameters)  # type: ignore[arg-type]
            plans.append("\n".join("  " + str(row[-1]) for row in rows))
    return "\n".join(plans)


def _bytes(url: str) -> int:
    engine = make_engine(url)
    with engine.connect() as connection:
        if url.startswith("sqlite"):
            query = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        else:
            query = "SELECT pg_database_size(current_database())"
        size = int(connection.execute(text(query)).scalar_one())
    engine.dispose()
    return size


def render(
    seen: dict[tuple[str, int], dict[str, float]],
    sizes: dict[tuple[str, int], float],
    options: argparse.Namespace,
) -> str:
    columns = list(seen)
    names = [f"{kind}, {rows:,}" for kind, rows in columns]
    lines = [
        "# Growth",
        "",
        "What the database asks for after so many trials, each with its record, its rounds, steps and events. Milliseconds of a",
        "query with its transaction, lowest median of five batches.",
        "",
        f"| | {' | '.join(names)} |",
        "|---|" + "---:|" * len(columns),
        f"| bytes per trial, everything included | {' | '.join(f'{sizes[c]:,.0f}' for c in columns)} |",
    ]
    who = ""
    for question in seen[columns[0]]:
        asks, _, name = question.partition(": ")
        if asks != who:
            who = asks
            lines.append(f"| **{who}** |" + " |" * len(columns))
        lines.append(f"| {name} | {' | '.join(f'{seen[c][question]:.2f}' for c in columns)} |")
    lines += [
        "",
        f"Command: `python -m benchmarks.scale.growth --rows {' '.join(map(str, options.rows))}`  ",
        f"{len(os.sched_getaffinity(0))} cores, on {time.strftime('%Y-%m-%d')}.",
        "",
    ]
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument(
        "--url", nargs="+", help="databases to ask (and to fill, if empty) in place of private ones"
    )
    parser.add_argument("--explain", action="store_true", help="tell the plans of slow queries")
    parser.add_argument("--batch-sec", type=float, default=BATCH_SEC)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--output", type=Path, help="write the table here as well")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
