"""Which jobs a list shows, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, TypedDict

from sqlalchemy import ColumnElement, Text, cast, func, select

from tunefarm_db.repositories.base import Order, equal, has_tag, has_text
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import JobRow, ModelRow, SweepCellRow, table_of

_JOBS, _MODELS = table_of(JobRow), table_of(ModelRow)

JOBS_AND_MODELS = _JOBS.join(_MODELS, ModelRow.id == JobRow.model_id)
"""The tables that filters and orders refer to."""


class JobFilters(TypedDict, total=False):
    """What all listed jobs have; a filter that is left out, None or empty lets every job pass.

    Attributes:
        state: Their state.
        states: Their state is one of these.
        model_id: Their model.
        model_text: Part of their model's name, in any case.
        device_key: Their pool.
        sweep_id: They belong to this sweep.
        tags: They have all of these tags.
        text: Part of the id, the model's name, a tag, the note, the target or the pool, in any case.
    """

    state: JobState | None
    states: Collection[JobState]
    model_id: str | None
    model_text: str
    device_key: str | None
    sweep_id: str | None
    tags: Collection[str]
    text: str


class JobOrder(StrEnum):
    """The orders of a list of jobs; equal jobs are sorted newest first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    CHANGED = "changed"
    MODEL = "model"
    STATE = "state"
    TRIALS = "trials"
    LATENCY = "latency"
    SPEEDUP = "speedup"
    RUNTIME = "runtime"


_UNKNOWN_SEC, _UNKNOWN_RATIO = 1e300, -1.0  # last in their orders


def _order(key: ColumnElement[Any], *, largest_first: bool = False) -> Order:
    return Order(id=_JOBS.c.id, tables=JOBS_AND_MODELS, key=key, largest_first=largest_first)


ORDERS: Mapping[JobOrder, Order] = {
    JobOrder.NEWEST: _order(_JOBS.c.id, largest_first=True),
    JobOrder.OLDEST: _order(_JOBS.c.id),
    JobOrder.CHANGED: _order(_JOBS.c.updated_at, largest_first=True),
    JobOrder.MODEL: _order(func.lower(_MODELS.c.name)),
    JobOrder.STATE: _order(cast(_JOBS.c.state, Text)),
    JobOrder.TRIALS: _order(_JOBS.c.trials, largest_first=True),
    JobOrder.LATENCY: _order(
        func.coalesce(_JOBS.c.network_latency_sec, _JOBS.c.best_latency_sec, _UNKNOWN_SEC)
    ),
    JobOrder.SPEEDUP: _order(func.coalesce(_JOBS.c.over_untuned, _UNKNOWN_RATIO), largest_first=True),
    JobOrder.RUNTIME: _order(func.coalesce(_JOBS.c.over_runtime, _UNKNOWN_RATIO), largest_first=True),
}


def conditions(filters: JobFilters) -> list[ColumnElement[bool]]:
    """Return the conditions of a query of `JOBS_AND_MODELS`."""
    where = equal(_JOBS.c, **{name: filters.get(name) for name in ("state", "model_id", "device_key")})
    if states := filters.get("states"):
        where.append(JobRow.state.in_(sorted(states)))
    if model_text := filters.get("model_text"):
        where.append(ModelRow.name.icontains(model_text, autoescape=True))
    if sweep_id := filters.get("sweep_id"):
        where.append(JobRow.id.in_(select(SweepCellRow.job_id).where(SweepCellRow.sweep_id == sweep_id)))
    where += [has_tag(_JOBS.c.tags, tag) for tag in filters.get("tags") or ()]
    if text := filters.get("text"):
        columns = (_JOBS.c.id, _MODELS.c.name, _JOBS.c.note, _JOBS.c.target_key, _JOBS.c.device_key)
        where.append(has_text(text, columns, _JOBS.c.tags))
    return where
