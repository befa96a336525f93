"""The trace of a job: where each second went, from the upload of its model to the artifact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job
from tunefarm_tuning.core.spans import Span, SpanKind, chrome_trace, seconds_by_kind

_KINDS_OF_WORKERS = frozenset({SpanKind.STEP, SpanKind.PHASE})
_WAITED_SEC = 60.0
_SHORT = 400
"""Attempts at steps: a page adds up no more spans than these have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """The spans of a job.

    Attributes:
        spans: In the order of their begin; those of the model's upload and import first, if the job waited for them.
        began: Unix seconds.
        ended: Unix seconds; of a running job, now.
        dropped: How many spans were not kept.
    """

    spans: tuple[Span, ...]
    began: float
    ended: float
    dropped: int

    def seconds(self) -> Mapping[str, float]:
        """Return where the seconds went, by `SpanKind` or ``"waiting"``."""
        return seconds_by_kind(self.spans, self.began, self.ended)

    def to_chrome(self) -> dict[str, Any]:
        """Return the trace as a file for ``chrome://tracing`` and Perfetto."""
        names: dict[int, str] = {}
        for span in self.spans:
            if span.kind is SpanKind.CALL:
                names.setdefault(span.process, f"child: {span.name.partition(':')[0]}")
            elif span.kind in _KINDS_OF_WORKERS:
                names[span.process] = "worker"
            elif span.kind is SpanKind.UPLOAD:
                names[span.process] = "API"
        trace = chrome_trace(self.spans, names)
        trace["otherData"] |= {"seconds": dict(self.seconds()), "dropped_spans": self.dropped}
        return trace


def short_trace(repos: Repositories, job: Job) -> JobTrace | None:
    """Return the trace of an ended job for its page; None if the job runs, none was kept, or it is long."""
    if not job.state.is_finished or len(repos.traces.of_job(job, _SHORT + 1)) > _SHORT:
        return None
    trace = job_trace(repos, job)
    return trace if trace.spans else None


def job_trace(repos: Repositories, job: Job) -> JobTrace:
    """Return the trace of a job.

    The upload and the import of its model belong to it if the job was the first to need them: if they ended at most a minute
    before the job was submitted, and began after the model's job before that was.
    """
    traces = repos.traces.of_job(job)
    before = repos.jobs.list(model_id=job.model_id, cursor=job.id, limit=1).items
    since = max([job.created_at - _WAITED_SEC, *(other.created_at for other in before)])
    spans: list[Span] = []
    dropped = 0
    for trace in traces:
        read = [Span.from_json(span) for span in trace.spans]
        if trace.job_id is None and not any(_was_waited_for(span, since, job.created_at) for span in read):
            continue
        spans += read
        dropped += trace.dropped
    spans.sort(key=lambda span: span.began)
    return JobTrace(
        spans=tuple(spans),
        began=min([job.created_at, *(span.began for span in spans)]),
        ended=job.finished_at or repos.now(),
        dropped=dropped,
    )


def _was_waited_for(span: Span, since: float, submitted: float) -> bool:
    """Return whether a span of an upload or an import is one that a job waited for."""
    return since <= span.ended <= submitted
