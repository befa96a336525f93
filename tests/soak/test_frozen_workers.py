"""Workers freeze for longer than their lease, and wake up when another worker has it."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time
from contextlib import closing

import pytest
from soak_audit import audit
from soak_farm import SoakFarm, counted, soak_farm

from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.values import Step, StepState

pytestmark = pytest.mark.exhaustive

# workers, jobs, rounds of each, freezes
SIZES = {"small": (2, 2, 6, 2), "middle": (3, 3, 20, 10), "big": (4, 8, 120, 100)}


def freeze(pids: list[int], farm: SoakFarm) -> None:
    """Stop processes, but not while they hold SQLite's one write lock: that would stop everybody."""
    url = farm.settings.database_url.get_secret_value()
    while True:
        send(pids, signal.SIGSTOP)
        if not url.startswith("sqlite"):
            return
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=1.0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.rollback()
                return
            except sqlite3.OperationalError:
                send(pids, signal.SIGCONT)
                time.sleep(0.05)


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def left(now: Step, step: Step) -> Step | None:
    """Return the step when another worker has it, or its commit was under way when its worker froze."""
    return now if now.fence > step.fence or now.state is StepState.DONE else None


def test_late_writes_are_rejected(tmp_path, farm_url, size, rng, report) -> None:
    num_workers, num_jobs, rounds, freezes_asked = SIZES[size]
    settings = {"lease_sec": 1.5}
    with soak_farm(tmp_path / "farm", farm_url, workers=num_workers, devices=num_workers, **settings) as farm:
        model = farm.ready_model(Scenario(tasks=2, trial_sec=0.3))
        jobs = [farm.submit(model, trials=rounds, seed=seed) for seed in range(num_jobs)]
        freezes = 0
        while farm.open_jobs() or freezes < freezes_asked:
            if not farm.open_jobs():
                jobs.append(farm.submit(model, trials=rounds, seed=len(jobs)))
            leased = farm.at_work(rng) if freezes < freezes_asked else None
            if leased is None:
                time.sleep(0.1)
                continue
            worker, step, pid = leased
            pids = [worker.process.pid, *worker.descendants()]
            freeze(pids, farm)
            now = farm.step(step.id)
            if pid in pids and (now.state, now.fence) == (StepState.LEASED, step.fence):
                late = worker.log.count("late write rejected")
                after = farm.wait(
                    lambda step=step: left(farm.step(step.id), step), "another worker to take the round"
                )
                send(pids, signal.SIGCONT)
                if after.fence > step.fence:
                    farm.wait(
                        lambda worker=worker, late=late: worker.log.count("late write rejected") > late,
                        "the late worker to be turned away",
                    )
                    freezes += 1
            else:
                send(pids, signal.SIGCONT)
        farm.finish()
        figures = audit(farm, trials=rounds * len(jobs), freezes=freezes, workers=num_workers)
        assert counted(farm) == farm.late_writes() >= freezes
        report(figures)
