"""The context of a step: its claim, its transactions, and the steps that follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tunefarm_app.engines.interface import Engine
from tunefarm_app.leases.step_lease import JobPausedError, StepLease
from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, Step
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError, InvariantError, TransientError


class Prefetched(Protocol):
    """Work that a step begins in the background for the next step of its job."""

    def settle(self) -> None:
        """Wait until the work no longer uses the present step's claims."""
        ...

    def discard(self) -> None:
        """End the running work and delete its results. Does nothing once the results were used."""
        ...


class PrefetchSlot:
    """Holds prefetched work until the next step of the same process takes it.

    Args:
        lasts: Returns whether the process is likely to run the next step as well.
    """

    def __init__(self, lasts: Callable[[], bool]) -> None:
        self._lasts = lasts
        self._held: Prefetched | None = None

    def begin(self, start: Callable[[], Prefetched]) -> None:
        """Start the work if this process will probably run the next step."""
        self.close()
        if self._lasts():
            self._held = start()

    def settle(self) -> None:
        """Let the present step end (`Prefetched.settle`); work that will not be used is discarded."""
        if not self._lasts():
            self.close()
        elif self._held is not None:
            self._held.settle()

    def take(self) -> Prefetched | None:
        """Return the work; from now on the caller uses or discards it."""
        held, self._held = self._held, None
        return held

    def close(self) -> None:
        """Discard the work."""
        if (held := self.take()) is not None:
            held.discard()


@dataclass(slots=True, kw_only=True)
class StepContext:
    """A claimed step, the means to run it, and the steps to send once it is committed.

    Attributes:
        following: The steps to start or to send once this one is committed, in order.
        beside: The steps to send then, whatever follows.
        prefetch: Holds work for the next step; None if this process runs none.
    """

    services: Services
    step: Step
    lease: StepLease
    following: list[Step] = field(default_factory=list)
    beside: list[Step] = field(default_factory=list)
    prefetch: PrefetchSlot | None = None

    @property
    def engine(self) -> Engine:
        return self.services.require_engine()

    @property
    def cancellation(self) -> Cancellation:
        return self.lease.cancellation

    @property
    def job_id(self) -> str:
        if self.step.job_id is None:
            raise InvariantError(f"step {self.step.id} ({self.step.kind}) has no job")
        return self.step.job_id

    @contextmanager
    def note(self) -> Iterator[Repositories]:
        """Open a transaction in the middle of the step; it is rolled back if the step is no longer ours."""
        self.lease.check()
        with self.services.uow.write() as repos:
            repos.steps.lock_claimed(self.step.id, self.step.fence)
            yield repos

    @contextmanager
    def commit(self, device: DeviceLease | None = None) -> Iterator[Repositories]:
        """Open the transaction that ends the step and releases `device`; it is rolled back if the step is no longer ours.

        It wakes the step that is next on such a device.

        Raises:
            LeaseLostError: If the step is no longer ours.
            TransientError: ``device-lease-lost`` if the device is no longer ours.
        """
        self.lease.check()
        woken: Step | None = None
        with self.services.uow.write() as repos:
            repos.steps.finish(self.step.id, self.step.fence)
            yield repos
            if device is not None:
                if not repos.devices.release_lease(device.device.id, device.fence):
                    # Another step of the job may have measured at the same time.
                    raise TransientError(
                        f"the lease of device {device.device.name} was lost", code="device-lease-lost"
                    )
                woken = self.lease.pass_on(repos, device)
        if device is not None:
            self.lease.forget_device()
        if woken is not None:
            self.following.insert(0, woken)

    def follow_with(self, repos: Repositories, step: Step) -> None:
        """Start or send `step`, which the present transaction added, after the commit."""
        repos.steps.mark_sent([step.id])
        self.following.append(step)

    def send_along(self, repos: Repositories, step: Step) -> None:
        """Send `step`, which the present transaction added, after the commit; it does not end the turn of the steps that follow."""
        repos.steps.mark_sent([step.id])
        self.beside.append(step)

    def job(self, repos: Repositories) -> Job:
        """Return the step's job, its row locked until the end of the transaction.

        Raises:
            CancelledError: If it was cancelled, or another step of it failed for good.
            JobPausedError: If it was paused.
        """
        job = repos.jobs.get(self.job_id, lock=True)
        if job.cancel_requested or job.state.is_finished:
            raise CancelledError(f"the job {job.state.clause}, or is to be cancelled")
        if job.state is JobState.PAUSED:
            raise JobPausedError("the job was paused")
        return job
