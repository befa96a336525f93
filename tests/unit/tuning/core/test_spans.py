from __future__ import annotations

import contextvars
import json
import threading

import pytest

from tunefarm_tuning.core import spans
from tunefarm_tuning.core.spans import (
    WAITING,
    Span,
    SpanKind,
    SpanLog,
    chrome_trace,
    current_log,
    recording,
    seconds_by_kind,
    span,
)


def noted(kind: SpanKind, began: float, sec: float, process: int = 1) -> Span:
    return Span(name=kind.value, kind=kind, began=began, sec=sec, process=process)


def test_a_span_is_noted_even_if_it_raises() -> None:
    with recording() as log:
        with span("outer", SpanKind.PHASE), span("inner", SpanKind.LLVM):
            pass
        with pytest.raises(ZeroDivisionError), span("broken", SpanKind.RUN):
            raise ZeroDivisionError
    assert {each.name for each in log.spans} == {"outer", "inner", "broken"}
    outer, inner = (next(each for each in log.spans if each.name == name) for name in ("outer", "inner"))
    assert outer.began <= inner.began
    assert outer.sec >= inner.sec
    assert current_log() is None


def test_without_a_log_nothing_is_noted() -> None:
    with span("nobody looks", SpanKind.RUN):
        assert current_log() is None


def test_threads_take_part_in_a_copy_of_the_context() -> None:
    @span("in the thread", SpanKind.RUN)
    def work() -> None:
        pass

    with recording() as log:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        thread.join()
    assert [each.name for each in log.spans] == ["in the thread"]


def test_a_log_keeps_no_more_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MAX_SPANS", 2)
    log = SpanLog()
    log.add([noted(SpanKind.RUN, number, 1.0) for number in range(5)])
    assert len(log.spans) == 2
    assert log.dropped == 3


def test_each_moment_counts_once_for_the_most_telling_kind() -> None:
    listed = [
        noted(SpanKind.STEP, 2.0, 8.0),
        noted(SpanKind.START, 3.0, 2.0),
        noted(SpanKind.START, 3.5, 1.0),
        noted(SpanKind.LLVM, 4.5, 2.0),
        noted(SpanKind.TIMING, 9.0, 5.0),
    ]
    seconds = seconds_by_kind(listed, 0.0, 12.0)
    assert seconds == pytest.approx({WAITING: 2.0, "step": 3.5, "start": 1.5, "llvm": 2.0, "timing": 3.0})
    assert sum(seconds.values()) == pytest.approx(12.0)


def test_spans_as_json_and_back() -> None:
    llvm = noted(SpanKind.LLVM, 12.5, 0.25, process=7)
    assert Span.from_json(json.loads(json.dumps(llvm.to_json()))) == llvm
    for wrong in ([], ["a", "no-kind", 1, 2, 3], ["a", "llvm", "x", 2, 3]):
        with pytest.raises((ValueError, TypeError)):
            Span.from_json(wrong)


def test_a_chrome_trace_has_a_complete_event_for_each_span() -> None:
    trace = chrome_trace(
        [noted(SpanKind.LLVM, 11.0, 0.5, 3), noted(SpanKind.STEP, 10.0, 2.0, 2)], {2: "worker"}
    )
    name, *events = trace["traceEvents"]
    assert name == {"name": "process_name", "ph": "M", "pid": 2, "tid": 0, "args": {"name": "worker"}}
    assert [(event["cat"], event["ts"], event["dur"], event["pid"]) for event in events] == [
        ("step", 0, 2_000_000, 2),
        ("llvm", 1_000_000, 500_000, 3),
    ]
    assert all(event["ph"] == "X" for event in events)
    assert trace["otherData"]["began_unix_sec"] == 10.0
