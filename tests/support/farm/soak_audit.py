"""The audit after a soak: nothing is lost, doubled, leased twice or left over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import lease_log
from soak_farm import Figures, SoakFarm, counted, marked
from waiting import wait_until

from tunefarm_app.models.removal import sweep_blobs
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.process.scratch import sweep

# A fault of the device or the farm is no trial: it is recorded, and the config is tried again.
_LOST = Outcome.INFRASTRUCTURE_ERROR.value
_REAL = f"outcome <> '{_LOST}'"

# A job's last tracks end with a round that was planned, and is not needed any more; its draft is not, once it has its artifact.
_NEEDLESS = "state = 'cancelled' AND kind IN ('tune', 'draft')"

# Each query returns what must not be; its name says what that is.
_NEVER = {
    "a job that did not succeed": "SELECT id, state, error FROM jobs WHERE state <> 'succeeded'",
    "a step that is not done": f"SELECT id, kind, state, error FROM steps WHERE state <> 'done' AND NOT ({_NEEDLESS})",
    "a trial of a round that was not done": """
        SELECT trials.id, steps.state FROM trials JOIN steps
        ON steps.job_id = trials.job_id AND steps.round = trials.round AND steps.kind = 'tune'
        WHERE steps.state <> 'done'""",
    "a track that is still open": "SELECT id, in_flight FROM steps WHERE in_flight IS NOT NULL AND state <> 'leased'",
    "a job without its trials": f"""
        SELECT jobs.id, jobs.trials, count(trials.id) FROM jobs
        LEFT JOIN trials ON trials.job_id = jobs.id AND trials.{_REAL}
        GROUP BY jobs.id, jobs.trials HAVING jobs.trials <> count(trials.id)""",
    "a task without its trials": f"""
        SELECT job_tasks.job_id, job_tasks.position, job_tasks.trials, count(trials.id) FROM job_tasks
        LEFT JOIN trials ON trials.job_id = job_tasks.job_id AND trials.position = job_tasks.position AND trials.{_REAL}
        GROUP BY job_tasks.job_id, job_tasks.position, job_tasks.trials HAVING job_tasks.trials <> count(trials.id)""",
    "a round without its event": """
        SELECT told.job_id, told.rounds, done.rounds FROM
        (SELECT job_id, count(*) AS rounds FROM events WHERE kind = 'round' GROUP BY job_id) AS told JOIN
        (SELECT job_id, sum(rounds) AS rounds FROM job_tasks GROUP BY job_id) AS done ON done.job_id = told.job_id
        WHERE told.rounds <> done.rounds""",
    "a trial twice": f"""
        SELECT job_id, position, config_key FROM trials WHERE {_REAL}
        GROUP BY job_id, position, config_key HAVING count(*) > 1""",
    "a trial of a round that no step did": """
        SELECT trials.id FROM trials LEFT JOIN steps
        ON steps.job_id = trials.job_id AND steps.round = trials.round AND steps.kind = 'tune'
        WHERE steps.id IS NULL""",
    "a trial without its record": f"""
        SELECT trials.id FROM trials LEFT JOIN records ON records.id = trials.record_id
        WHERE records.id IS NULL AND trials.{_REAL}""",
    "a record of no trial": """
        SELECT records.id FROM records LEFT JOIN trials ON trials.record_id = records.id
        WHERE trials.id IS NULL AND NOT records.confirmed""",
    "a gap in the rounds": """
        SELECT job_id, count(*), max(round) FROM steps WHERE kind = 'tune' GROUP BY job_id
        HAVING count(*) <> max(round) + 1""",
    "a gap in the events": """
        SELECT jobs.id, jobs.event_seq, count(*), max(events.seq) FROM jobs JOIN events ON events.job_id = jobs.id
        GROUP BY jobs.id, jobs.event_seq HAVING count(*) <> max(events.seq) OR count(*) <> jobs.event_seq""",
    "a job without an artifact": """
        SELECT jobs.id FROM jobs LEFT JOIN artifacts ON artifacts.job_id = jobs.id WHERE artifacts.id IS NULL""",
}


def audit(farm: SoakFarm, *, trials: int, **more: Any) -> Figures:
    """Stop the farm and audit it; `trials` is the number that all its jobs had to measure.

    Raises:
        AssertionError: With what is wrong.
    """
    farm.stop()
    wait_until(lambda: not marked(farm.mark), lambda: f"the end of processes {marked(farm.mark)}")
    engine = farm.services.uow.engine
    nothing_wrong(farm.rows)
    measured = farm.count(f"trials WHERE {_REAL}")
    tallied = farm.rows(
        f"SELECT coalesce(sum(value), 0) FROM counters WHERE name = 'trials' AND label <> '{_LOST}'"
    )
    if engine.dialect.name == "sqlite":
        assert farm.rows("PRAGMA integrity_check") == [("ok",)]
    assert (measured, tallied[0][0]) == (trials, trials), (measured, tallied, trials)
    log = lease_log.read(engine)
    assert not log.overlapping
    assert not log.committed_twice
    assert not log.out_of_turn
    _nothing_left_over(farm)
    return Figures(
        jobs=farm.count("jobs"),
        steps=farm.count("steps"),
        trials=measured,
        step_leases=log.leases.get("steps", 0),
        device_leases=log.leases.get("devices", 0),
        side_by_side=log.side_by_side,
        late_writes=int(counted(farm)),
        seconds=round(time.monotonic() - farm.began, 1),
        more=more,
    )


def nothing_wrong(rows: Callable[[str], list[tuple[Any, ...]]]) -> None:
    """Look through a database whose jobs have all ended; `rows` asks it."""
    for name, query in _NEVER.items():
        offending = rows(query)
        assert not offending, f"{name}: {offending[:5]}"


def _nothing_left_over(farm: SoakFarm) -> None:
    """Check that the sweep removes everything that killed processes left."""
    temporary = farm.folder / "tmp"
    for path in temporary.iterdir():
        os.utime(path, (1e9, 1e9))
    sweep(temporary)
    # Celery's pool has an empty folder, which a killed worker leaves: its library's, and no data.
    left = [
        path
        for path in temporary.iterdir()
        if not (path.name.startswith("pymp-") and not any(path.iterdir()))
    ]
    assert not left
    sweep_blobs(farm.services, temporary_age_sec=-60.0, unreferenced_age_sec=-60.0)
    store = farm.folder / "store"
    # Object code of kernels is kept up to a size, and no row refers to it.
    stored = {path.name for path in store.rglob("*") if path.is_file() and path.parent.name != "kernels"}
    referenced = {
        row[0]
        for row in farm.rows(
            "SELECT sha256 FROM models WHERE state <> 'deleted' UNION SELECT sha256 FROM artifacts"
        )
    }
    assert stored == referenced, (stored - referenced, referenced - stored)
