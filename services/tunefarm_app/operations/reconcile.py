"""The reconciler: restarts lost work from the database.

Any number of copies may run at once, in any process: everything it does is a compare-and-set, or harmless twice.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import structlog

from tunefarm_app.devices.calibration import ask_for_calibrations
from tunefarm_app.devices.history import thin_device_history
from tunefarm_app.jobs.transitions import cancel, fail_subject
from tunefarm_app.leases.device_turns import FOR_A_WORKER
from tunefarm_app.models.removal import sweep_blobs
from tunefarm_app.operations.retention import apply_retention
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Step, StepKind, StepState
from tunefarm_tuning.core.errors import TransientError

log = structlog.stdlib.get_logger(__name__)

RESEND_AFTER_SEC = 5.0
SWEEP_EVERY_SEC = 3600.0
_BATCH = 500


class Reconciler:
    """Ticks every `every_sec` in a thread of its own, between `start` and `stop`.

    Failure: a tick that fails is logged, and the next one follows; the thread never ends by itself.
    """

    def __init__(self, services: Services, *, every_sec: float = 1.0) -> None:
        self._services = services
        self._every_sec = every_sec
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._next_sweep = 0.0
        self.last_tick_at: float | None = None
        """Monotonic time of the last tick that went well, for health checks."""

    def start(self) -> None:
        """Start the thread."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the present tick."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.tick()
            except TransientError as error:
                log.warning("reconciler cannot work now", error=error.message)
            except Exception:
                log.exception("reconciler tick failed")
            self._stopping.wait(self._every_sec)

    def tick(self) -> None:
        """Run every repair once.

        Raises:
            TransientError: If the database is away.
        """
        reap(self._services)
        cancel_requested(self._services)
        mark_stale_devices(self._services)
        ask_for_calibrations(self._services)
        send_due(self._services)
        if time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + SWEEP_EVERY_SEC
            apply_retention(self._services)
            thin_device_history(self._services)
            sweep_blobs(self._services)
        self.last_tick_at = time.monotonic()


def reap(services: Services) -> tuple[Step, ...]:
    """Take back steps whose workers are gone; a step that was tried too often fails together with its job."""
    with services.uow.write() as repos:
        reaped = repos.steps.reap_expired(services.settings.max_step_attempts)
        # Always in the same order of jobs: two reconcilers that lock the same jobs must not deadlock.
        for step in sorted(reaped, key=lambda step: step.subject_id):
            if step.state is StepState.FAILED:
                fail_subject(repos, step, step.error or {})
            elif step.job_id is not None and not repos.jobs.get(step.job_id).state.is_finished:
                repos.events.add(
                    step.job_id, "retry", {"step": step.kind.value, "attempt": step.attempts, "error": None}
                )
    for step in reaped:
        log.warning(
            "step reaped",
            step_id=step.id,
            job_id=step.job_id,
            step=step.kind.value,
            state=step.state.value,
            attempt=step.attempts,
        )
    return reaped


def cancel_requested(services: Services) -> int:
    """End the jobs that were asked to stop but still run; return how many."""
    with services.uow.read() as repos:
        jobs = repos.jobs.open(cancel_requested=True)
    for job in jobs:
        with services.uow.write() as repos:
            cancel(repos, job.id)
    return len(jobs)


def mark_stale_devices(services: Services) -> None:
    """Set devices offline that sent no heartbeat for too long."""
    with services.uow.write() as repos:
        stale = repos.devices.mark_stale(services.settings.device_stale_sec)
    for device in stale:
        log.warning(
            "device silent",
            device_id=device.id,
            name=device.name,
            state=device.state.value,
            reason=device.reason,
        )


def send_due(services: Services, *, resend_after_sec: float = RESEND_AFTER_SEC) -> int:
    """Send the steps that are due and were not sent lately; return how many.

    A step that was sent before is sent again only if the queue holds fewer messages than steps are due: else its
    message is most likely still there, and busy workers would come back to thousands of copies.
    """
    with services.uow.read() as repos:
        due = repos.steps.due(_BATCH, resend_after_sec=resend_after_sec)
    if not due:
        return 0
    by_kind: dict[StepKind, list[Step]] = defaultdict(list)
    for step in due:
        by_kind[step.kind].append(step)
    looked_at: list[str] = []
    sent = 0
    for kind, steps in by_kind.items():
        again = [step for step in steps if step.sent_at is not None]
        waiting = services.dispatcher.queue_length(kind) if again else None
        if waiting is not None and waiting >= len(steps):
            looked_at += [step.id for step in again]
            steps = [step for step in steps if step.sent_at is None]
        for step in steps:
            if not services.dispatcher.send(step.id, kind):
                break  # the broker is away; they stay due
            looked_at.append(step.id)
            sent += 1
    with services.uow.write() as repos:
        repos.steps.mark_sent(looked_at)
    for step in due:
        if step.sent_at is not None and step.job_id is not None:
            _tell_of_waiting(services, step)
    return sent


def _tell_of_waiting(services: Services, step: Step) -> None:
    """Note once in the job that no worker took the step, if none did after it was sent again."""
    with services.uow.write() as repos:
        job = repos.jobs.get(str(step.job_id), lock=True)
        if repos.steps.get(step.id).state is not StepState.READY or job.state.is_finished:
            return
        if repos.steps.at_work(job.id):
            return
        if job.progress.get("waiting_told") != FOR_A_WORKER:
            repos.events.add(job.id, "waiting", {"waiting": FOR_A_WORKER})
            repos.jobs.update(job.id, progress={**job.progress, "waiting_told": FOR_A_WORKER})
