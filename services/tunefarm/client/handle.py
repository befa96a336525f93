"""A job to wait for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm.client.errors import JobCancelledError, JobFailedError, WaitTimeoutError
from tunefarm.client.jobs import Jobs
from tunefarm.client.results import Event, Job, JobTask, Record, Trial
from tunefarm.client.transport import ByteProgress

JobProgress = Callable[[Job], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """What `JobHandle.download` wrote."""

    artifact: Path
    report: Path
    report_page: Path


class JobHandle:
    """One job of the server's. `job` is how it was when last looked at."""

    def __init__(self, jobs: Jobs, job: Job) -> None:
        self._jobs = jobs
        self.job = job

    @property
    def id(self) -> str:
        return self.job.id

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}: {self.job.state}>"

    def refresh(self) -> Job:
        """Ask the server how the job is."""
        self.job = self._jobs.get(self.id)
        return self.job

    def wait(
        self,
        on_progress: JobProgress | None = None,
        *,
        timeout_sec: float | None = None,
        poll_sec: float = 1.0,
        check: bool = True,
    ) -> Job:
        """Wait until the job has ended, and return it.

        Args:
            on_progress: Called with the job after every look.
            timeout_sec: Wait no longer than this; the job goes on.
            poll_sec: Time between two looks.
            check: Raise for a job that did not succeed.

        Raises:
            JobFailedError: If it failed.
            JobCancelledError: If it was cancelled.
            WaitTimeoutError: If it takes longer than `timeout_sec`.
            UnavailableError: If the server stays away; the job goes on, and `wait` can be called again.
        """
        deadline = None if timeout_sec is None else time.monotonic() + timeout_sec
        while True:
            job = self.refresh()
            if on_progress is not None:
                on_progress(job)
            if job.is_finished:
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeoutError(
                    f"job {self.id} has not ended after {timeout_sec:g} s", code="wait-timeout"
                )
            time.sleep(poll_sec)
        if check:
            raise_for_state(job)
        return job

    def cancel(self) -> Job:
        self.job = self._jobs.cancel(self.id)
        return self.job

    def change(
        self,
        *,
        trials: int | None = None,
        seconds: float | None = None,
        patience: int | None = None,
        min_gain: float | None = None,
        priority: int | str | None = None,
    ) -> Job:
        self.job = self._jobs.change(
            self.id, trials=trials, seconds=seconds, patience=patience, min_gain=min_gain, priority=priority
        )
        return self.job

    def retry(self) -> Job:
        self.job = self._jobs.retry(self.id)
        return self.job

    def pause(self) -> Job:
        self.job = self._jobs.pause(self.id)
        return self.job

    def resume(self) -> Job:
        self.job = self._jobs.resume(self.id)
        return self.job

    def tasks(self) -> tuple[JobTask, ...]:
        return self._jobs.tasks(self.id)

    def trials(self) -> Iterator[Trial]:
        return self._jobs.trials(self.id)

    def records(self) -> Iterator[Record]:
        return self._jobs.records(self.id)

    def events(self, *, after: int = 0) -> tuple[Event, ...]:
        return self._jobs.events(self.id, after=after)

    def report(self) -> Mapping[str, Any]:
        return self._jobs.report(self.id)

    def save_report(self, file: Path | str) -> Path:
        """Write the report as one HTML file."""
        return self._jobs.save_report(self.id, file)

    def download(
        self, folder: Path | str, *, name: str | None = None, on_progress: ByteProgress | None = None
    ) -> Download:
        """Download the artifact (``NAME.tunefarm``) and the report (``NAME.report.json``, ``NAME.report.html``) into a folder."""
        artifact = self._jobs.download(self.id, folder, name=name, on_progress=on_progress)
        report = artifact.with_name(f"{artifact.stem}.report.json")
        report.write_text(json.dumps(self.report(), indent=2) + "\n", encoding="utf-8")
        page = self.save_report(artifact.with_name(f"{artifact.stem}.report.html"))
        return Download(artifact=artifact, report=report, report_page=page)


def raise_for_state(job: Job) -> None:
    """Raise the error of a job that ended without an artifact."""
    if job.state == "cancelled":
        raise JobCancelledError(f"job {job.id} was cancelled", code="cancelled", fields={"job_id": job.id})
    if job.state == "failed":
        error = job.error
        raise JobFailedError(
            error.message if error else f"job {job.id} failed",
            code=error.code if error else "internal",
            fields={"job_id": job.id, **(error.fields if error else {})},
        )
