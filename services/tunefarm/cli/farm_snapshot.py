"""A snapshot of the farm: the values that `tunefarm top` shows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tunefarm.live.board import budget_used

if TYPE_CHECKING:
    from tunefarm.client import Client, Device, Job

OPEN_STATES = ("tuning", "compiling", "extracting", "queued", "paused")
"""In the order in which jobs are shown."""

_MOST_PER_STATE = 200
_ENDED = 5
_WINDOW_SEC = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job's line.

    Attributes:
        model: The model's name.
        devices: Names of the devices that are working for it.
        trials_per_min: Over the last minute of watching; over the whole search where nobody watched yet. None for a
            job that is not searching.
    """

    job: Job
    model: str
    devices: tuple[str, ...]
    trials_per_min: float | None

    @property
    def progress(self) -> float | None:
        """Spent share of the job's budget; None without a limit of time or trials."""
        return budget_used(self.job)

    def as_json(self) -> dict[str, Any]:
        """Return it as `tunefarm top --json` prints it."""
        job = self.job
        return {
            "id": job.id,
            "model_id": job.model_id,
            "model": self.model,
            "state": job.state,
            "phase": job.progress.phase,
            "waiting": job.waiting,
            "priority": job.priority,
            "device_key": job.device_key,
            "devices": list(self.devices),
            "progress": self.progress,
            "trials": job.trials,
            "failures": job.failures,
            "trials_per_min": self.trials_per_min,
            "best_latency_sec": job.best_latency_sec,
            "network_latency_sec": job.network_latency_sec,
            "tuned_sec": job.tuned_sec,
            "created_at": job.created_at,
            "finished_at": job.finished_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """A device's line. `model` is the name of the model whose job has the device; empty if none."""

    device: Device
    model: str | None

    @property
    def work(self) -> str:
        """The device's present work, in words; empty if it has none."""
        if self.device.job_id is not None:
            return f"{self.device.job_id} {self.model or ''}".strip()
        return "calibration" if (self.device.lease_owner or "").startswith("calibration:") else ""

    def as_json(self) -> dict[str, Any]:
        """Return it as `tunefarm top --json` prints it."""
        device = self.device
        return {
            "id": device.id,
            "name": device.name,
            "device_key": device.device_key,
            "device_model": device.device_model,
            "state": device.state,
            "reason": device.reason,
            "job_id": device.job_id,
            "work": self.work,
            "last_seen_at": device.last_seen_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmSnapshot:
    """The farm at one time (Unix seconds, of this machine).

    Attributes:
        jobs: The unfinished jobs.
        ended: The newest of those that have.
        is_cut: Whether there are more jobs than `jobs` holds.
    """

    url: str
    time: float
    jobs: tuple[JobLine, ...]
    ended: tuple[JobLine, ...]
    devices: tuple[DeviceLine, ...]
    is_cut: bool

    @property
    def queue(self) -> Mapping[str, int]:
        """Numbers of jobs that are paused, wait, and run."""
        paused = sum(line.job.state == "paused" for line in self.jobs)
        waiting = sum(
            line.job.state == "queued" or line.job.waiting is not None
            for line in self.jobs
            if line.job.state != "paused"
        )
        return {"at_work": len(self.jobs) - waiting - paused, "waiting": waiting, "paused": paused}

    @property
    def trials_per_min(self) -> float:
        """Trials per minute of all jobs."""
        return sum(line.trials_per_min or 0.0 for line in self.jobs)

    def as_json(self) -> dict[str, Any]:
        """Return it as `tunefarm top --json` prints it."""
        return {
            "url": self.url,
            "time": self.time,
            "queue": dict(self.queue),
            "trials_per_min": self.trials_per_min,
            "jobs": [line.as_json() for line in self.jobs],
            "ended": [line.as_json() for line in self.ended],
            "devices": [line.as_json() for line in self.devices],
            "is_cut": self.is_cut,
        }


class Watcher:
    """Takes snapshots of a farm, and remembers enough of earlier ones to compute rates."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._models: dict[str, str] = {}
        self._rates: dict[str, Rate] = {}

    def look(self) -> FarmSnapshot:
        """Ask the server. Raises `ClientError`."""
        pages = [self._client.jobs.list(state=state, limit=_MOST_PER_STATE) for state in OPEN_STATES]
        # By id, because a job may change its state between two requests.
        open_jobs = {job.id: job for page in pages for job in page.items}
        newest = self._client.jobs.list(limit=50).items
        devices = self._client.devices.list()
        held: dict[str, list[str]] = {}
        for device in devices:
            if device.job_id is not None:
                held.setdefault(device.job_id, []).append(device.name)
        self._rates = {job_id: self._rates.get(job_id) or Rate() for job_id in open_jobs}
        jobs = tuple(self._line(job, held) for job in open_jobs.values())
        names = {line.job.id: line.model for line in jobs}
        return FarmSnapshot(
            url=self._client.url,
            time=time.time(),
            jobs=jobs,
            ended=tuple(self._line(job, held) for job in newest if job.is_finished)[:_ENDED],
            devices=tuple(
                DeviceLine(device=device, model=names.get(device.job_id or "")) for device in devices
            ),
            is_cut=any(page.next_cursor is not None for page in pages),
        )

    def _line(self, job: Job, held: Mapping[str, list[str]]) -> JobLine:
        rate = self._rates.get(job.id)
        if rate is not None:
            rate.note(job.trials, time.monotonic())
        return JobLine(
            job=job,
            model=self._model(job.model_id),
            devices=tuple(held.get(job.id, ())),
            trials_per_min=None if rate is None or job.state != "tuning" else rate.per_min(job),
        )

    def _model(self, model_id: str) -> str:
        from tunefarm.client import NotFoundError

        if model_id not in self._models:
            try:
                self._models[model_id] = self._client.models.get(model_id).name
            except NotFoundError:  # deleted since
                self._models[model_id] = model_id
        return self._models[model_id]


class Rate:
    """The rate of a job's trials, per minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, trials: int, now_sec: float) -> None:
        """Add the number of trials at a time."""
        self._samples.append((now_sec, trials))
        while len(self._samples) > 2 and self._samples[1][0] <= now_sec - _WINDOW_SEC:
            self._samples.popleft()

    def per_min(self, job: Job) -> float | None:
        """Return the rate over the observed time; over the job's whole search until half a window is observed."""
        (since_sec, before), (now_sec, after) = self._samples[0], self._samples[-1]
        if now_sec - since_sec >= _WINDOW_SEC / 2:
            return 60.0 * (after - before) / (now_sec - since_sec)
        return 60.0 * job.trials / job.tuned_sec if job.tuned_sec else None
