"""Rows of a job, its tasks and its events as a repository returns them; a test names only what matters to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tunefarm_db.states.job import JobState
from tunefarm_db.values import Event, Job, JobTask, NetworkTiming

_EMPTY = Job(
    **dict.fromkeys(Job.__dataclass_fields__),  # type: ignore[arg-type]
)


def job(**changed: Any) -> Job:
    plain: dict[str, Any] = {
        "id": "job_1",
        "state": JobState.TUNING,
        "budget": {},
        "options": {},
        "progress": {},
        "trials": 0,
        "tuned_sec": 0.0,
    }
    return replace(_EMPTY, **{**plain, **changed})


def task(**changed: Any) -> JobTask:
    plain: dict[str, Any] = dict.fromkeys(JobTask.__dataclass_fields__)
    return JobTask(**{**plain, "weight": 1, "history": [], "position": 0, **changed})


def event(seq: int, at: float, kind: str, **data: Any) -> Event:
    return Event(job_id="job_1", seq=seq, kind=kind, data=data, created_at=at)


def network_timing(**changed: Any) -> NetworkTiming:
    plain: dict[str, Any] = {
        **dict.fromkeys(NetworkTiming.__dataclass_fields__),
        "job_id": "job_1",
        "number": 0,
        "sha256": "0" * 64,
        "inputs_sha256": "1" * 64,
        "size_bytes": 100,
        "name": "net.tunefarm",
        "tasks": 2,
        "covered": 0,
        "began_sec": 0.0,
        "costs": {},
        "expected_sec": 1.5,
        "tries": 0,
        "not_before": 0.0,
        "spent_sec": 0.0,
        "created_at": 0.0,
    }
    return NetworkTiming(**{**plain, **changed})
