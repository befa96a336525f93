"""The filters of the client's lists: as keyword arguments of its methods, and as a request's query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from tunefarm.client.job_terms import texts
from tunefarm.client.keywords import check_names, named_keywords

F = TypeVar("F", bound=Callable[..., Any])

PAGE_OF_ALL = 500
"""Items per page where all are read."""


class ModelFilters(TypedDict, total=False):
    """Which models are listed, and in which order. None is equivalent to omission."""

    state: str | None
    tags: Sequence[str] | None
    text: str | None
    order: str | None


class JobFilters(TypedDict, total=False):
    """Which jobs are listed, and in which order. None is equivalent to omission."""

    state: str | None
    model_id: str | None
    device_key: str | None
    sweep_id: str | None
    tags: Sequence[str] | None
    text: str | None
    order: str | None


class BestFilters(TypedDict, total=False):
    """Of which records the best are listed. None is equivalent to omission."""

    workload_key: str | None
    target_key: str | None
    device_model: str | None
    toolchain: str | None
    operator: str | None
    shape: str | Sequence[int] | None


class RecordFilters(BestFilters, total=False):
    """Which records are listed. None is equivalent to omission."""

    outcome: str | None


class AuditFilters(TypedDict, total=False):
    """Which entries of the audit log are listed. None is equivalent to omission."""

    actor: str | None
    action: str | None
    subject: str | None


_RECORD_MEANINGS = {
    "workload_key": "Only records of this computation.",
    "target_key": "Only records for this target, spelled as in records.",
    "device_model": "Only records of this device model.",
    "toolchain": "Only records by this compiler version.",
    "operator": "Only records of kernels whose name contains this (``conv2d``).",
    "shape": 'Only records of kernels with an argument whose shape contains this: ``(56, 56, 64)`` or ``"56x56x64"``.',
    "outcome": "Only records of this outcome.",
}
_MEANINGS: Mapping[type, Mapping[str, str]] = {
    ModelFilters: {
        "state": "Only models in this state; deleted ones are listed only so.",
        "tags": "Only models with all of these tags.",
        "text": "Only models with this text in their id, name, tags or note, in any case.",
        "order": "``newest``, ``oldest``, ``name``, ``state`` or ``size``.",
    },
    JobFilters: {
        "state": "Only jobs in this state.",
        "model_id": "Only jobs of this model.",
        "device_key": "Only jobs on this pool.",
        "sweep_id": "Only jobs of this sweep.",
        "tags": "Only jobs with all of these tags.",
        "text": "Only jobs with this text in their id, model's name, tags, note, target or pool, in any case.",
        "order": "``newest``, ``oldest``, ``changed``, ``model``, ``state``, ``trials``, ``latency``, ``speedup`` (over untuned) or "
        "``runtime`` (over the fastest other runtime); the best first.",
    },
    BestFilters: _RECORD_MEANINGS,
    RecordFilters: _RECORD_MEANINGS,
    AuditFilters: {
        "actor": "Only what this API key did.",
        "action": "Only this, for example ``key-created``.",
        "subject": "Only what was done to the key, model, job, device, … of this id.",
    },
}


def takes_filters(kind: type) -> Callable[[F], F]:
    """Name the filters in the signature and in the docstring of a method that takes them as ``**filters``."""
    return named_keywords(kind, _MEANINGS[kind].__getitem__, "**filters")


def filter_query(filters: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Return the query of a request for a list.

    Raises:
        TypeError: If there is no such filter.
    """
    check_names(filters, kind)
    query = dict(filters)
    if (tags := query.pop("tags", None)) is not None:
        query["tag"] = texts(tags)
    shape = query.get("shape")
    if shape is not None and not isinstance(shape, str):
        query["shape"] = "x".join(map(str, shape))
    return query
