"""Spans: what a process and its children spent time on, so that every second of a job can be accounted for.

A caller opens a `SpanLog` with `recording`; `span` notes a block of work in it. Without a log a span costs nothing. Children note
spans of their own and send them with their answers (`process.child`). All begin on the machine's clock, so that the spans of several
processes lie side by side.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunefarm_tuning.core.untrusted_text import clean

MAX_SPANS = 4000
"""A log keeps so many; it counts those that are left out."""

_MOST_NAME, _MOST_PROCESS = 200, 1 << 32


class SpanKind(StrEnum):
    """What a span's time goes to, the most telling last: where spans overlap, that kind counts."""

    STEP = "step"
    PHASE = "phase"
    UPLOAD = "upload"
    CALL = "call"
    START = "start"
    GRAPH = "graph"
    REFERENCE = "reference"
    RUN = "run"
    LINK = "link"
    LLVM = "llvm"
    TIMING = "timing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A block of work.

    Attributes:
        name: What was done.
        kind: What the time goes to.
        began: Unix seconds.
        sec: How long it took.
        process: The id of the process that did it.
    """

    name: str
    kind: SpanKind
    began: float
    sec: float
    process: int

    @property
    def ended(self) -> float:
        return self.began + self.sec

    def to_json(self) -> list[Any]:
        return [self.name, self.kind.value, round(self.began, 6), round(self.sec, 6), self.process]

    @classmethod
    def from_json(cls, json: list[Any]) -> Span:
        """Read what `to_json` wrote, of a child that strangers' bytes may have taken over. Raises ValueError or TypeError if it is none."""
        name, kind, began, sec, process = json
        if not (math.isfinite(began) and 0 <= sec < math.inf and 0 <= process < _MOST_PROCESS):
            raise ValueError("a span at no time, or of no process")
        return cls(
            name=clean(str(name), _MOST_NAME),
            kind=SpanKind(kind),
            began=float(began),
            sec=float(sec),
            process=int(process),
        )


class SpanLog:
    """Collects spans. Concurrency: any thread.

    Attributes:
        dropped: How many spans were beyond `MAX_SPANS`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self.dropped = 0

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans, as long as there is room."""
        with self._lock:
            for span_ in spans:
                if len(self._spans) < MAX_SPANS:
                    self._spans.append(span_)
                else:
                    self.dropped += 1

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans in the order of their begin."""
        with self._lock:
            return tuple(sorted(self._spans, key=lambda noted: noted.began))


_log: ContextVar[SpanLog | None] = ContextVar("tunefarm_span_log", default=None)


@contextmanager
def recording(log: SpanLog | None = None) -> Iterator[SpanLog]:
    """Note the spans of the block in a log; threads take part if they run in a copy of the block's context."""
    log = log or SpanLog()
    token = _log.set(log)
    try:
        yield log
    finally:
        _log.reset(token)


def current_log() -> SpanLog | None:
    """Return the log of the surrounding `recording`; None outside of one."""
    return _log.get()


@contextmanager
def span(name: str, kind: SpanKind) -> Iterator[None]:
    """Note the block as a span, also if it raises."""
    log = _log.get()
    if log is None:
        yield
        return
    began, started = time.time(), time.monotonic()
    try:
        yield
    finally:
        sec = time.monotonic() - started
        log.add([Span(name=name, kind=kind, began=began, sec=sec, process=os.getpid())])


_RANK = {kind: rank for rank, kind in enumerate(SpanKind)}
WAITING = "waiting"
"""The name of the time without any span in `seconds_by_kind`."""


def seconds_by_kind(spans: Iterable[Span], began: float, ended: float) -> dict[str, float]:
    """Return where the seconds between two times went, by `SpanKind`; the sum is ``ended - began``.

    A moment counts for the most telling kind of the spans that cover it, or for `WAITING` if none does.
    """
    edges: list[tuple[float, int, SpanKind]] = []
    for noted in spans:
        first, last = max(noted.began, began), min(noted.ended, ended)
        if first < last:
            edges += [(first, 1, noted.kind), (last, -1, noted.kind)]
    totals: dict[str, float] = {}
    running = dict.fromkeys(SpanKind, 0)
    at = began
    for time_, change, kind in [*sorted(edges, key=lambda edge: edge[0]), (ended, 0, SpanKind.STEP)]:
        open_kinds = [each for each, count in running.items() if count > 0]
        name = max(open_kinds, key=_RANK.__getitem__).value if open_kinds else WAITING
        if time_ > at:
            totals[name] = totals.get(name, 0.0) + time_ - at
        at = time_
        running[kind] += change
    return totals


def chrome_trace(spans: Iterable[Span], names: dict[int, str] | None = None) -> dict[str, Any]:
    """Return spans as a Chrome trace (``chrome://tracing``, Perfetto): complete events, microseconds since the first.

    Source: "Trace Event Format", Google, 2016.

    Args:
        spans: The spans.
        names: Names of processes by their ids.
    """
    listed = sorted(spans, key=lambda noted: (noted.began, -noted.sec))
    origin = listed[0].began if listed else 0.0
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}}
        for process, name in sorted((names or {}).items())
    ]
    events += [
        {
            "name": noted.name,
            "cat": noted.kind.value,
            "ph": "X",
            "ts": round((noted.began - origin) * 1e6),
            "dur": round(noted.sec * 1e6),
            "pid": noted.process,
            "tid": 0,
        }
        for noted in listed
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"began_unix_sec": origin},
    }
