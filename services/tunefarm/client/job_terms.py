"""The terms of a job as keyword arguments of the client's methods, and as the request's JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from tunefarm.client.errors import InvalidRequestError
from tunefarm.client.keywords import check_names, named_keywords
from tunefarm_text.job_terms import API_LIMITS, HELP, LABELS

F = TypeVar("F", bound=Callable[..., Any])


class JobLimits(TypedDict, total=False):
    """Budget of a job: the first limit reached ends the search."""

    trials: int | None
    seconds: float | None
    job_seconds: float | None
    minutes: float | None
    search_minutes: float | None
    patience: int | None
    min_gain: float | None


class JobChanges(JobLimits, total=False):
    """Terms that can be changed before a job has ended, and labels, which always can."""

    priority: int | str | None
    tags: Sequence[str] | None
    note: str | None


class CompileTerms(TypedDict, total=False):
    """Terms of a job without a search. None is equivalent to omission."""

    priority: int | str | None
    target: str | Mapping[str, Any] | None
    device_key: str | None
    precision: str | None
    max_error: float | None
    other_shapes: bool | None
    baselines: str | Sequence[str] | None
    options: Mapping[str, Any] | None


class JobTerms(JobLimits, CompileTerms, total=False):
    """Terms of a new job. None is equivalent to omission."""

    tuner: str | None
    seed: int | None
    search: bool | None


class SweepTerms(JobLimits, total=False):
    """Terms of a new sweep, beside its models, pools and precisions. None is equivalent to omission."""

    priority: int | str | None
    target: str | Mapping[str, Any] | None
    max_error: float | None
    other_shapes: bool | None
    baselines: str | Sequence[str] | None
    options: Mapping[str, Any] | None
    tuner: str | None
    seed: int | None
    search: bool | None


MEANINGS = {**HELP, **LABELS}

_OPTIONS = ("precision", "max_error", "other_shapes", "search")
"""Terms that the request's `options` hold."""


def takes_terms(
    kind: type[JobTerms] | type[JobChanges] | type[CompileTerms] | type[SweepTerms],
) -> Callable[[F], F]:
    """Name the terms in the signature and in the docstring of a method that takes them as ``**terms``.

    Args:
        kind: Which terms the method takes.
    """
    return named_keywords(kind, lambda name: MEANINGS.get(name, "Further options of the server."), "**terms")


def job_json(terms: JobTerms) -> dict[str, Any]:
    """Return the request's JSON for terms, without omitted ones.

    Raises:
        TypeError: If there is no such term.
        InvalidRequestError: ``invalid-budget`` if there is no limit, or one that is no number above zero.
    """
    check_names(terms, JobTerms)
    budget = budget_json(terms)
    searches = terms.get("search") is not False
    if searches and not budget:
        names = ", ".join(JobLimits.__annotations__)
        raise InvalidRequestError(f"the budget is empty: give at least one of {names}", code="invalid-budget")
    named = _given({name: terms.get(name) for name in _OPTIONS})
    if baselines := baseline_names(terms.get("baselines")):
        named["baselines"] = baselines
    options = {**(terms.get("options") or {}), **named} if named else terms.get("options")
    optional = {
        "target": terms.get("target"),
        "device_key": terms.get("device_key"),
        "tuner": terms.get("tuner"),
        "seed": terms.get("seed"),
        "priority": terms.get("priority"),
        "options": options,
    }
    return {**({"budget": budget} if budget else {}), **_given(optional)}


def baseline_names(asked: str | Sequence[str] | None) -> list[str]:
    """Return the names of runtimes in a list, or in a text with commas."""
    names = asked.split(",") if isinstance(asked, str) else asked or ()
    return [name.strip() for name in names if name.strip()]


def texts(given: str | Sequence[str]) -> list[str]:
    """Return a list of texts; a text by itself is a list of one, not of its letters."""
    return [given] if isinstance(given, str) else list(given)


def change_json(changes: JobChanges) -> dict[str, Any]:
    """Return the request's JSON for changes, without omitted ones.

    Raises:
        TypeError: If there is no such term, or it cannot be changed.
        InvalidRequestError: ``invalid-budget`` if a limit is no number above zero.
    """
    check_names(changes, JobChanges)
    tags = changes.get("tags")
    return _given(
        {
            "priority": changes.get("priority"),
            "budget": budget_json(changes) or None,
            "tags": None if tags is None else texts(tags),
            "note": changes.get("note"),
        }
    )


def budget_json(limits: JobLimits) -> dict[str, float]:
    """Return the given limits by the server's names; minutes and seconds of the same become one limit.

    Raises:
        InvalidRequestError: ``invalid-budget`` if a limit is no number above zero: the server would call it by its own name.
    """
    for name in JobLimits.__annotations__:
        _check_limit(name, limits.get(name))
    search_sec = _sum(limits.get("seconds"), limits.get("search_minutes"))
    job_sec = _sum(limits.get("job_seconds"), limits.get("minutes"))
    named = {**limits, "seconds": search_sec, "job_seconds": job_sec}
    return _given({sent: named.get(name) for name, sent in API_LIMITS.items()})


def _check_limit(name: str, limit: object) -> None:
    if limit is None:
        return
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not (is_number and 0 < limit < math.inf):  # type: ignore[operator]
        raise InvalidRequestError(f"{name} must be a number above zero, not {limit!r}", code="invalid-budget")


def _sum(seconds: float | None, minutes: float | None) -> float | None:
    return None if seconds is None and minutes is None else (seconds or 0.0) + 60.0 * (minutes or 0.0)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
