"""A job's events as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_db.values import Event
from tunefarm_text import quantities
from tunefarm_text.job_terms import STOPS

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One event. `look` is how loud it is: empty, ``good``, ``warn`` or ``bad``."""

    seq: int
    at: float
    kind: str
    text: str
    look: str


def log_line(event: Event) -> LogLine:
    """Return the event as the log shows it; one of a kind that is not known here is shown by its name."""
    tell, look = _KINDS.get(event.kind, (_unknown, ""))
    if event.kind == "finished":
        look = {"succeeded": "good", "failed": "bad"}.get(str(event.data.get("state")), "")
    return LogLine(
        seq=event.seq, at=event.created_at, kind=event.kind, text=tell(event.data) or event.kind, look=look
    )


def _round(data: Data) -> str:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in (data.get("outcomes") or {}).items())
    best = f"; best {quantities.latency(data.get('best_cost_sec'))}" if data.get("best_cost_sec") else ""
    return f"{data.get('task', 'a task')}: {outcomes or 'search space exhausted'}{best}"


def _phase(data: Data) -> str:
    reason = data.get("stop_reason")
    return f"{data.get('phase', 'phase')} begins" + (f": {words(str(reason))}" if reason else "")


def _error(data: Data) -> str:
    error = data.get("error")
    return str(error.get("message", "")) if isinstance(error, Mapping) else ""


def _retry(data: Data) -> str:
    why = _error(data) or "its worker was lost"
    return f"the {data.get('step', '')} step is repeated (attempt {data.get('attempt', '?')}): {why}"


def _lost_track(data: Data) -> str:
    return f"round {data.get('round', '?')} failed; the job's other rounds continue: {_error(data)}"


def _confirmed(data: Data) -> str:
    before, after = data.get("best_cost_before_sec"), data.get("best_cost_sec")
    return (
        f"{data.get('task', 'a task')}: best configs confirmed, {quantities.latency(before)} → "
        f"{quantities.latency(after)}"
    )


def _finished(data: Data) -> str:
    return f"{data.get('state', 'finished')}" + (f": {_error(data)}" if _error(data) else "")


def _budget(data: Data) -> str:
    return f"budget {quantities.budget(data.get('before') or {})} → {quantities.budget(data.get('budget') or {})}"


def _unknown(data: Data) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in data.items() if isinstance(value, str | int | float)
    )


def _measured(data: Data) -> str:
    disturbed = ", disturbed by other work" if data.get("quiet") is False else ""
    taken = quantities.latency(data.get("latency_sec"))
    return f"the artifact was measured again on {data.get('device', 'a device')}: {taken}{disturbed}"


def _network(data: Data) -> str:
    disturbed = ", disturbed by other work" if data.get("quiet") is False else ""
    tuned = quantities.tuned_kernels(data.get("covered") or 0, data.get("tasks") or 0)
    taken = quantities.latency(data.get("latency_sec"))
    return f"the network takes {taken} on {data.get('device', 'a device')}, {tuned}{disturbed}"


def _undrafted(data: Data) -> str:
    what = (
        "the artifact so far is not renewed" if data.get("number") else "no untuned artifact before the end"
    )
    return f"{what}: {_error(data)}"


def _draft(data: Data) -> str:
    tuned = quantities.tuned_kernels(data.get("covered") or 0, data.get("tasks") or 0)
    return f"an artifact so far is ready: {tuned}, {quantities.size(data.get('size_bytes'))}"


def _quantised(data: Data) -> str:
    kept = data.get("kept") or 0
    products = quantities.plural(data.get("products") or 0, "product")
    floats = f", {kept} stay float32" if kept else ""
    error, limit = data.get("error") or 0.0, data.get("max_error") or 0.0
    return f"quantised on the samples: {products} in int8{floats}, error {error:.2g} of {limit:g} allowed"


_KINDS: dict[str, tuple[Callable[[Data], str], str]] = {
    "queued": (lambda data: f"queued for the pool {data.get('device_key', '')}", ""),
    "phase": (_phase, "info"),
    "round": (_round, ""),
    "confirmed": (_confirmed, ""),
    "unconfirmed": (lambda data: f"best configs not confirmed: {_error(data)}", "warn"),
    "retry": (_retry, "warn"),
    "retried": (lambda data: f"retried from the {data.get('step', '')} step", "info"),
    "waiting": (lambda data: str(data.get("waiting", "")), "warn"),
    "device-trouble": (
        lambda data: f"trouble with {data.get('device', '')}: {data.get('message', '')}",
        "bad",
    ),
    "lane-lost": (_lost_track, "warn"),
    "paused": (lambda _: "paused", "warn"),
    "resumed": (lambda _: "resumed", "info"),
    "budget": (_budget, "info"),
    "priority": (lambda data: f"priority {data.get('before')} → {data.get('priority')}", "info"),
    "compile-now": (lambda data: f"job {data.get('job_id', '')} compiles the best kernels so far", "info"),
    "draft": (_draft, "good"),
    "quantised": (_quantised, "info"),
    "undrafted": (_undrafted, "warn"),
    "network-timed": (_network, "good"),
    "network-untimed": (lambda data: f"the network could not be timed: {_error(data)}", "warn"),
    "finished": (_finished, ""),
    "measure": (lambda _: "the artifact is to be measured again", "info"),
    "measured": (_measured, "good"),
    "unmeasured": (lambda data: f"the artifact could not be measured: {_error(data)}", "warn"),
}
"""The sentence and the look of each kind of event."""


def words(stop_reason: str) -> str:
    """Return why a search ended, in words."""
    return STOPS.get(stop_reason, stop_reason)
