"""A process that writes to SQLite is killed repeatedly: the file stays intact, with all that was committed."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from soak_farm import Figures
from waiting import wait_until

from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import UnitOfWork

KILLS = {"small": 4, "middle": 50, "big": 200}
MOST_COMMITS = 40

# An event and a counter in each transaction; says so when it is committed.
WRITER = """
import sys
from tunefarm_db.engine import make_engine
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.unit_of_work import UnitOfWork

uow = UnitOfWork(make_engine(sys.argv[1]))
while True:
    with uow.write() as repos:
        repos.counters.add(Counter.TRIALS, {"ok": 1.0}, of="one")
        event = repos.events.add(sys.argv[2], "round", {"text": "x" * 2000})
    print(event.seq, flush=True)
"""


def test_the_file_stays_whole(
    tmp_path: Path, size: str, rng: random.Random, report: Callable[[Figures], None]
) -> None:
    began = time.monotonic()
    path = tmp_path / "farm.db"
    url = f"sqlite:///{path}"
    schema.upgrade(url)
    engine = make_engine(url)
    with UnitOfWork(engine).write() as repos:
        model = repos.models.add(name="m", sha256="0" * 64, size_bytes=1)
        job = repos.jobs.add(
            model_id=model.id, target={}, target_key="t", device_key="d", tuner="xgb", seed=0, budget={}
        )
    engine.dispose()
    there = 0
    for _ in range(KILLS[size]):
        committed = _write_until_killed(
            url, job.id, commits=rng.randrange(1, MOST_COMMITS), rest_sec=rng.random() / 50
        )
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            number, last = connection.execute("SELECT count(*), max(seq) FROM events").fetchone()
            (tallied,) = connection.execute("SELECT sum(value) FROM counters").fetchone()
        assert number == last == tallied
        assert number >= committed > there
        there = number
    assert there > 0
    report(
        Figures(
            seconds=round(time.monotonic() - began, 1),
            more={"kills": KILLS[size], "transactions": there},
        )
    )


def _write_until_killed(url: str, job_id: str, *, commits: int, rest_sec: float) -> int:
    """Kill a writer after that many commits and a moment more; return the last one that it spoke of."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, url, job_id], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout as output:
        for _ in range(commits):
            line = output.readline()
            assert line, "the writer ended"
        time.sleep(rest_sec)
        writer.kill()
        numbers = [int(line), *map(int, output.read().splitlines())]
    wait_until(lambda: writer.poll() is not None, "the writer's end")
    return numbers[-1]
