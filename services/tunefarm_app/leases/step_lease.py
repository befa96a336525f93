"""Keep the leases of a step and its device while it runs: renew the leases, notice when the work must stop, act on a failing device."""

from __future__ import annotations

import threading
import time
from typing import Self

import structlog

from tunefarm_app.leases.device_blame import blame_for
from tunefarm_app.leases.device_turns import may_take, wake_next
from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Step, StepState
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import (
    CancelledError,
    DeviceLostError,
    LeaseLostError,
    NotFoundError,
    TransientError,
    TunefarmError,
)

log = structlog.stdlib.get_logger(__name__)

_LOOK_SEC = 1.0

TOO_LONG = "step-timeout"
"""Error code of a step that exceeded its deadline."""


class WorkerStoppingError(TransientError):
    """The worker was told to stop: another worker must run the step."""

    default_code = "worker-stopping"


class JobPausedError(TransientError):
    """The job was paused: its step waits until it is resumed."""

    default_code = "job-paused"


class StepLease:
    """Keeps the leases of a claimed step, and of the device that it takes; use it in a ``with``.

    When the work must stop (the user cancelled or paused the job, the lease was lost, the time is over) `reason` says
    why, and `cancellation` closes the child processes that the work waits for. Late writes are rejected by the fencing
    token, whatever happens here.

    Concurrency: `reason` and `check` from any thread.
    """

    def __init__(self, services: Services, step: Step, *, limit_sec: float) -> None:
        self.cancellation = Cancellation()
        self._services = services
        self._step = step
        self._log = log.bind(step_id=step.id, job_id=step.job_id)  # contextvars do not reach the thread
        self._lease_sec = services.settings.lease_sec
        self._limit_sec = limit_sec
        self._started = self._renewed = time.monotonic()
        self._draining_since: float | None = None
        self._device: DeviceLease | None = None
        self._device_since = 0.0
        self._reason: TunefarmError | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"lease-{step.id}", daemon=True)

    @property
    def reason(self) -> TunefarmError | None:
        """Why the work must stop; None while it may go on."""
        return self._reason

    def check(self) -> None:
        """Raise `reason`, if there is one."""
        if self._reason is not None:
            raise self._reason

    def take_device(self, device_key: str) -> DeviceLease | None:
        """Lease a free device of the pool for as long as the step runs; None if none is free for this job."""
        with self._services.uow.write() as repos:
            repos.steps.lock_claimed(self._step.id, self._step.fence)
            lease = None
            if self._step.job_id is None or may_take(repos, self._step.job_id, device_key):
                lease = repos.devices.lease(device_key, f"step:{self._step.id}", self._lease_sec)
        with self._lock:
            self._device = lease
            self._device_since = time.monotonic()
        if lease is not None:
            ids = {"device_id": lease.device.id, "device": lease.device.name}
            structlog.contextvars.bind_contextvars(**ids)
            self._log = self._log.bind(**ids)
        return lease

    def blame_device(self, error: DeviceLostError) -> None:
        """Have a device that failed calibrated before the next step gets it, or quarantine it, as `device_blame` decides."""
        with self._lock:
            device = self._device
        blame = blame_for(error)
        uncalibrated = self._services.settings.calibrate_every_sec == 0 and blame.event is DeviceEvent.DOUBT
        if device is None or uncalibrated:
            return
        try:
            with self._services.uow.write() as repos:
                repos.devices.apply(device.device.id, blame.event, blame.reason, held=blame.held)
        except (NotFoundError, TransientError) as failed:
            self._log.warning("device not blamed", device_event=blame.event.value, error=failed.message)

    def pass_on(self, repos: Repositories, device: DeviceLease) -> Step | None:
        """In the transaction that released the device, add its time to the job, and wake the next step.

        Returns:
            The next step, to be sent; None if none waits or it is due already.
        """
        if self._step.job_id is not None:
            repos.jobs.charge(self._step.job_id, time.monotonic() - self._device_since)
        return wake_next(repos, device.device.device_key)

    def forget_device(self) -> None:
        """Stop renewing the device's lease, because the transaction that ended the step released it."""
        with self._lock:
            self._device = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._give_device_back()

    def _give_device_back(self) -> None:
        device, self._device = self._device, None
        if device is None:
            return
        try:
            with self._services.uow.write() as repos:
                repos.devices.release_lease(device.device.id, device.fence)
                woken = self.pass_on(repos, device)
            if woken is not None:
                self._services.dispatcher.send(woken.id, woken.kind)
        except TransientError as error:
            self._log.warning("device not given back; its lease runs out", error=error.message)

    def _watch(self) -> None:
        renew_every = self._lease_sec / 4
        look_every = min(_LOOK_SEC, renew_every)
        while not self._ended.wait(look_every) and self._reason is None:
            try:
                if time.monotonic() - self._started > self._limit_sec:
                    self._stop(
                        TransientError(
                            f"the {self._step.kind} step did not end within {self._limit_sec:g} s",
                            code=TOO_LONG,
                            limit_sec=self._limit_sec,
                        )
                    )
                elif self._is_drained():
                    self._stop(WorkerStoppingError("the worker was told to stop"))
                elif not self._look():
                    self._stop(self._why_not_ours())
                elif time.monotonic() - self._renewed >= renew_every:
                    self._renew()
            except TransientError as error:
                self._log.warning("lease not renewed", error=error.message)
                if time.monotonic() - self._renewed > self._lease_sec:
                    self._stop(LeaseLostError("the database was unavailable for longer than the lease"))
            except Exception:  # noqa: BLE001
                # A worker that cannot renew its lease must stop, whatever the reason.
                self._log.exception("lease thread failed")
                self._stop(LeaseLostError("the lease could not be renewed"))

    def _is_drained(self) -> bool:
        if not self._services.draining():
            return False
        self._draining_since = self._draining_since or time.monotonic()
        return time.monotonic() - self._draining_since >= self._services.settings.drain_sec

    def _look(self) -> bool:
        with self._services.uow.read() as repos:
            step = repos.steps.get(self._step.id)
        return step.state is StepState.LEASED and step.fence == self._step.fence

    def _why_not_ours(self) -> TunefarmError:
        try:
            with self._services.uow.read() as repos:
                if repos.steps.get(self._step.id).state is StepState.CANCELLED:
                    return CancelledError("the step is not wanted any more")
                job = None if self._step.job_id is None else repos.jobs.get(self._step.job_id)
            if job is not None and job.cancel_requested:
                return CancelledError("the job was cancelled")
            if job is not None and job.state is JobState.PAUSED:
                return JobPausedError("the job was paused")
        except NotFoundError:
            pass
        return LeaseLostError("the step's lease was lost", step_id=self._step.id, fence=self._step.fence)

    def _renew(self) -> None:
        with self._lock:
            device = self._device
        with self._services.uow.write() as repos:
            ours = repos.steps.renew(self._step.id, self._step.fence, self._lease_sec)
            device_ours = device is None or repos.devices.renew_lease(
                device.device.id, device.fence, self._lease_sec
            )
        self._renewed = time.monotonic()
        with self._lock:
            still_held = self._device is device
        if not ours:
            self._stop(self._why_not_ours())
        elif not device_ours and still_held:
            self._stop(DeviceLostError("the device was removed, or given to another step"))

    def _stop(self, reason: TunefarmError) -> None:
        if self._reason is None and not self._ended.is_set():
            self._reason = reason
            self.cancellation.cancel()  # first: the work must stop even if the log cannot be written
            self._log.info("step is to stop", reason=reason.code)
