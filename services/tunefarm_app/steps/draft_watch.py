"""When a draft gives way: to steps that wait for a worker, to its own job's compile, or because nobody wants it any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from tunefarm_app.jobs.drafts import holds_draft, wants_draft
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Job, StepKind
from tunefarm_tuning.core.cancellation import Cancellation, Closing
from tunefarm_tuning.core.errors import TransientError

log = structlog.stdlib.get_logger(__name__)

_LOOK_SEC = 1.0
_BUSY_LOOKS = 2
UNWANTED = "nobody"
OWN_JOB = "its job"
OTHERS = "other steps"
"""For whom a draft gives way."""


class DraftWatch(Closing):
    """Cancels the compile when it must give way.

    Attributes:
        way_for: `UNWANTED` if the job needs no draft any more, `OWN_JOB` while that compiles or is paused, `OTHERS` if steps
            wait for a worker; None while it may go on.
    """

    def __init__(self, services: Services, job_id: str, number: int) -> None:
        self.cancellation = Cancellation()
        self.way_for: str | None = None
        self._services = services
        self._job_id = job_id
        self._number = number
        self._busy_looks = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"draft-{job_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel the compile."""
        self.cancellation.cancel()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_SEC):
            try:
                self.way_for = self._look()
            except TransientError as error:
                log.warning("draft not looked after", error=error.message)
            if self.way_for is not None:
                self.cancellation.cancel()
                return

    def _look(self) -> str | None:
        with self._services.uow.read() as repos:
            job = repos.jobs.get(self._job_id)
        if not wants_draft(job, self._number):
            return UNWANTED
        if holds_draft(job):
            return OWN_JOB
        # A message that a free worker is about to take does not count.
        self._busy_looks = self._busy_looks + 1 if _steps_wait(self._services) else 0
        return OTHERS if self._busy_looks >= _BUSY_LOOKS else None


@contextmanager
def giving_way(context: StepContext, job: Job) -> Iterator[DraftWatch]:
    """Watch over the compile in the block."""
    watch = DraftWatch(context.services, job.id, context.step.round)
    try:
        with context.cancellation.attach(watch):
            yield watch
    finally:
        watch.end()


def _steps_wait(services: Services) -> bool:
    return any(
        services.dispatcher.queue_length(kind) for kind in (StepKind.IMPORT, StepKind.TUNE, StepKind.COMPILE)
    )
