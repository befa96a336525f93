"""The phases of a job and their times, read from its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm_app.storage.job_options import searches
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Event, Job

ORDER = ("import", "queue", "extract", "tune", "confirm", "compile", "verify")

_BY_NAME = {"extracting": "extract", "tuning": "tune", "confirming": "confirm", "compiling": "compile"}
_BY_STATE = {"queued": "queue", **_BY_NAME}
_VERIFYING = ("check-model", "measure", "other-shapes", "pack")
"""The compiler's own phases in which the network is built, and compared with its reference and timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase. `status` is ``waiting``, ``running``, ``paused``, ``done`` or ``stopped``; `sec` None where nobody knows.

    `is_earlier`: Whether it ended before the job began, whose time it is no part of.
    """

    name: str
    status: str
    sec: float | None
    is_earlier: bool = False


def phases_of(
    job: Job,
    milestones: Sequence[Event],
    *,
    now: float,
    imported: tuple[float, float | None] | None,
    report: Mapping[str, Any] | None,
) -> list[Phase]:
    """Return all phases in order.

    Args:
        job: The job.
        milestones: `Overview.milestones` of it.
        now: The database's time.
        imported: When its model's import began and ended.
        report: Of its artifact: it says how much of compiling was verifying.
    """
    spent, last = _spent(milestones, now)
    is_earlier = False
    if imported is not None and imported[1] is not None:
        spent["import"] = imported[1] - imported[0]
        is_earlier = imported[1] <= job.created_at
    if "compile" in spent:
        _split(job, spent, report)
        if last == "compile" and "verify" in spent:
            last = "verify"
    ended = job.state.is_finished
    reached = ORDER.index(last) if last else 0
    return [
        Phase(
            name=name,
            status=_status(job, index, reached, name in spent),
            sec=spent.get(name),
            is_earlier=is_earlier and name == "import",
        )
        for index, name in enumerate(ORDER)
        if name in spent
        or not (_is_left_out(job, name) or (name == "confirm" and (index < reached or ended)))
    ]


def _is_left_out(job: Job, name: str) -> bool:
    return name in ("tune", "confirm") and not searches(job)


def _status(job: Job, index: int, reached: int, was: bool) -> str:
    if index < reached or job.state is JobState.SUCCEEDED:
        return "done"
    if index > reached or not was:
        return "waiting"
    if job.state.is_finished:
        return "stopped"
    return "paused" if job.state is JobState.PAUSED else "running"


def _spent(milestones: Sequence[Event], now: float) -> tuple[dict[str, float], str]:
    spent: dict[str, float] = {}
    phase: str | None = None
    last, since = "", 0.0
    for event in milestones:
        if phase is not None:
            spent[phase] = spent.get(phase, 0.0) + max(event.created_at - since, 0.0)
        phase = _entered(event, last)
        if phase is not None:
            last, since = phase, event.created_at
            spent.setdefault(phase, 0.0)
    if phase is not None:
        spent[phase] += max(now - since, 0.0)
    return spent, last


def _entered(event: Event, last: str) -> str | None:
    """Return the phase that begins with the event; None where none is at work from then on."""
    if event.kind == "queued":
        return "queue"
    if event.kind == "phase":
        return _BY_NAME.get(str(event.data.get("phase")), last)
    if event.kind in ("resumed", "retried"):
        phase = _BY_STATE.get(str(event.data.get("state")), last)
        return "confirm" if phase == "tune" and last == "confirm" else phase
    return None


def _split(job: Job, spent: dict[str, float], report: Mapping[str, Any] | None) -> None:
    if report is not None:
        times = report.get("phases_sec") or {}
        verifying = sum(float(times.get(name, 0.0)) for name in _VERIFYING)
        if verifying:
            spent["verify"] = min(verifying, spent["compile"])
            spent["compile"] -= spent["verify"]
    elif job.state is JobState.COMPILING and job.progress.get("step") in _VERIFYING:
        spent["verify"] = 0.0
