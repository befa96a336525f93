"""A job to wait for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm.client.blocking import Blocking, blocking, blocking_each
from tunefarm.client.errors import JobCancelledError, JobFailedError
from tunefarm.client.jobs import AsyncJobs
from tunefarm.client.results import Event, Job, JobTask, Record, Trial
from tunefarm.client.streams import ByteProgress
from tunefarm.client.waiting import wait_until
from tunefarm.live.waiting import job_bars, somebody_watches

JobProgress = Callable[[Job], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """What `JobHandle.download` wrote."""

    artifact: Path
    report: Path
    report_page: Path


class AsyncJobHandle:
    """One job of the server's. `job` is how it was when last looked at."""

    def __init__(self, jobs: AsyncJobs, job: Job) -> None:
        self._jobs = jobs
        self.job = job

    @property
    def id(self) -> str:
        return self.job.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.job.state}>"

    async def refresh(self) -> Job:
        """Ask the server how the job is."""
        self.job = await self._jobs.get(self.id)
        return self.job

    async def wait(
        self,
        on_progress: JobProgress | None = None,
        *,
        timeout_sec: float | None = None,
        poll_sec: float = 1.0,
        check: bool = True,
        progress_bar: bool | None = None,
    ) -> Job:
        """Wait until the job has ended, and return it.

        Args:
            on_progress: Called with the job after every look.
            timeout_sec: Wait no longer than this; the job goes on.
            poll_sec: Time between two looks.
            check: Raise for a job that did not succeed.
            progress_bar: Draw how it goes on. Left out: in a terminal and in a notebook, where there is no
                `on_progress`.

        Raises:
            JobFailedError: If it failed.
            JobCancelledError: If it was cancelled.
            WaitTimeoutError: If it takes longer than `timeout_sec`.
            UnavailableError: If the server stays away; the job goes on, and `wait` can be called again.
        """
        with _drawn(progress_bar, on_progress) as seen:
            job = await wait_until(
                self._jobs.link,
                self.refresh,
                lambda job: job.is_finished,
                on_progress=seen,
                timeout_sec=timeout_sec,
                poll_sec=poll_sec,
                too_long=f"job {self.id} has not ended",
            )
        if check:
            raise_for_state(job)
        return job

    async def cancel(self) -> Job:
        self.job = await self._jobs.cancel(self.id)
        return self.job

    async def change(
        self,
        *,
        trials: int | None = None,
        seconds: float | None = None,
        patience: int | None = None,
        min_gain: float | None = None,
        priority: int | str | None = None,
    ) -> Job:
        self.job = await self._jobs.change(
            self.id, trials=trials, seconds=seconds, patience=patience, min_gain=min_gain, priority=priority
        )
        return self.job

    async def retry(self) -> Job:
        self.job = await self._jobs.retry(self.id)
        return self.job

    async def pause(self) -> Job:
        self.job = await self._jobs.pause(self.id)
        return self.job

    async def resume(self) -> Job:
        self.job = await self._jobs.resume(self.id)
        return self.job

    async def tasks(self) -> tuple[JobTask, ...]:
        return await self._jobs.tasks(self.id)

    def trials(self) -> AsyncIterator[Trial]:
        return self._jobs.trials(self.id)

    def records(self) -> AsyncIterator[Record]:
        return self._jobs.records(self.id)

    async def events(self, *, after: int = 0) -> tuple[Event, ...]:
        return await self._jobs.events(self.id, after=after)

    async def report(self) -> Mapping[str, Any]:
        return await self._jobs.report(self.id)

    async def save_report(self, file: Path | str) -> Path:
        """Write the report as one HTML file."""
        return await self._jobs.save_report(self.id, file)

    async def download(
        self, folder: Path | str, *, name: str | None = None, on_progress: ByteProgress | None = None
    ) -> Download:
        """Download the artifact (``NAME.tunefarm``) and the report (``NAME.report.json``, ``NAME.report.html``) into a folder."""
        artifact = await self._jobs.download(self.id, folder, name=name, on_progress=on_progress)
        report = artifact.with_name(f"{artifact.stem}.report.json")
        report.write_text(json.dumps(await self.report(), indent=2) + "\n", encoding="utf-8")
        page = await self.save_report(artifact.with_name(f"{artifact.stem}.report.html"))
        return Download(artifact=artifact, report=report, report_page=page)


class JobHandle(Blocking[AsyncJobHandle]):
    """One job of the server's. `job` is how it was when last looked at."""

    @property
    def job(self) -> Job:
        return self._core.job

    @property
    def id(self) -> str:
        return self._core.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.job.state}>"

    refresh = blocking(AsyncJobHandle.refresh)
    wait = blocking(AsyncJobHandle.wait)
    cancel = blocking(AsyncJobHandle.cancel)
    change = blocking(AsyncJobHandle.change)
    retry = blocking(AsyncJobHandle.retry)
    pause = blocking(AsyncJobHandle.pause)
    resume = blocking(AsyncJobHandle.resume)
    tasks = blocking(AsyncJobHandle.tasks)
    trials = blocking_each(AsyncJobHandle.trials)
    records = blocking_each(AsyncJobHandle.records)
    events = blocking(AsyncJobHandle.events)
    report = blocking(AsyncJobHandle.report)
    save_report = blocking(AsyncJobHandle.save_report)
    download = blocking(AsyncJobHandle.download)


@contextmanager
def _drawn(progress_bar: bool | None, on_progress: JobProgress | None) -> Iterator[JobProgress | None]:
    """Yield what is told of each look at a job: the bars, if there are any, and then `on_progress`."""
    if progress_bar is None:
        progress_bar = on_progress is None and somebody_watches()
    if not progress_bar:
        yield on_progress
        return
    with job_bars() as draw:

        def seen(job: Job) -> None:
            draw(job)
            if on_progress is not None:
                on_progress(job)

        yield seen


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
