"""`JobHandle`: wait for a job, and download its results."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from tunefarm.client.errors import ClientError, JobCancelledError, JobFailedError
from tunefarm.client.http.blocking import Blocking, blocking, blocking_as, blocking_each
from tunefarm.client.http.streams import ByteProgress
from tunefarm.client.http.waiting import AWAY_SEC, each_of, wait_until
from tunefarm.client.job_terms import JobChanges, takes_terms
from tunefarm.client.jobs import AsyncJobs
from tunefarm.client.results.jobs import Event, Job, JobTask, Record, Trial
from tunefarm.client.results.shown import ReportPage, line
from tunefarm.live.waiting import OF_A_JOB, live_view, somebody_watches

JobProgress = Callable[[Job], None]
AwayProgress = Callable[[ClientError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """Files that `JobHandle.download` wrote."""

    artifact: Path
    report: Path
    report_page: Path


class AsyncJobHandle:
    """A handle of a job on the server. `job` is its state at the last request."""

    def __init__(self, jobs: AsyncJobs, job: Job) -> None:
        self._jobs = jobs
        self.job = job

    @property
    def id(self) -> str:
        """The job's id, ``job_…``."""
        return self.job.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {line(self.job)}>"

    def _repr_html_(self) -> str:
        return self.job._repr_html_()

    async def refresh(self) -> Job:
        """Update `job` from the server, and return it."""
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
        away_sec: float = AWAY_SEC,
        on_away: AwayProgress | None = None,
    ) -> Job:
        """Wait until the job has ended, and return it. Ctrl-C ends the waiting, not the job.

        Args:
            on_progress: Called with the job after each update.
            timeout_sec: Longest wait. The job continues after it.
            poll_sec: Seconds between updates at most; at first they are shorter.
            check: Whether to raise an error if the job does not succeed.
            progress_bar: Whether to show progress bars. By default, in terminals and notebooks without `on_progress`.
            away_sec: Longest time without the server, as during its restart.
            on_away: Called with the error after each update that the server did not answer.

        Raises:
            JobFailedError: If it failed.
            JobCancelledError: If it was cancelled.
            WaitTimeoutError: If it takes longer than `timeout_sec`.
            UnavailableError: If the server does not answer for longer than `away_sec`. `wait` can be called again.
        """
        if on_progress is not None and not callable(on_progress):
            raise TypeError(
                "the first argument of wait is a function that is called with the job; for a limit use "
                "timeout_sec=…"
            )
        wanted = on_progress is None and somebody_watches() if progress_bar is None else progress_bar
        with _note_on_interrupt(self), live_view(wanted, OF_A_JOB, f"job {self.id}") as view:
            job = await wait_until(
                self._jobs.link,
                self.refresh,
                lambda job: job.is_finished,
                on_progress=each_of(view.on_job, on_progress),
                timeout_sec=timeout_sec,
                poll_sec=poll_sec,
                too_long=f"job {self.id} has not ended",
                away_sec=away_sec,
                on_away=each_of(view.on_away, on_away),
            )
        if check:
            raise_for_state(job)
        return job

    async def cancel(self) -> Job:
        """Request the job's cancellation, which may take some seconds. Its records stay."""
        self.job = await self._jobs.cancel(self.id)
        return self.job

    async def finish(self) -> Job:
        """End the search now, and compile the best so far (see `Jobs.finish`); `wait` then waits for the artifact."""
        self.job = await self._jobs.finish(self.id)
        return self.job

    async def compile_now(self) -> AsyncJobHandle:
        """Compile what is on record so far, while this job goes on; return the handle of the job that does so."""
        return AsyncJobHandle(self._jobs, await self._jobs.compile_now(self.id))

    @takes_terms(JobChanges)
    async def change(self, **changes: Unpack[JobChanges]) -> Job:
        """Change the job before it has ended (see `Jobs.change`). Omitted terms stay.

        Args:
            **terms
        """
        self.job = await self._jobs.change(self.id, **changes)
        return self.job

    async def retry(self) -> Job:
        """Retry the failed step of the job."""
        self.job = await self._jobs.retry(self.id)
        return self.job

    async def pause(self) -> Job:
        """Pause the job. It holds no device and spends no budget until `resume`."""
        self.job = await self._jobs.pause(self.id)
        return self.job

    async def resume(self) -> Job:
        """Resume the paused job."""
        self.job = await self._jobs.resume(self.id)
        return self.job

    async def tasks(self) -> tuple[JobTask, ...]:
        """Return the job's kernels and their progress."""
        return await self._jobs.tasks(self.id)

    def trials(self) -> AsyncIterator[Trial]:
        """Yield the job's trials in order of measurement."""
        return self._jobs.trials(self.id)

    def records(self) -> AsyncIterator[Record]:
        """Yield the job's records."""
        return self._jobs.records(self.id)

    async def save_records(self, file: Path | str) -> Path:
        """Write the job's records as JSON lines (see `client.jobs.save_records`)."""
        return await self._jobs.save_records(self.id, file)

    async def source(self, position: int, *, kind: str = "schedule", timeout_sec: float = 120.0) -> str:
        """Return the source of a kernel's best config.

        Args:
            position: Index of the task in the job.
            kind: ``schedule``, ``llvm``, ``asm`` or ``cuda`` (see `client.jobs.source`).
            timeout_sec: Longest wait for a worker.

        Raises:
            NotFoundError: ``no-such-source`` if the kernel has no source of this kind.
            ConflictError: ``no-kernel`` or ``source-not-made`` (see `client.jobs.source`).
            WaitTimeoutError: If it is not generated in time.
        """
        return await self._jobs.source(self.id, position, kind=kind, timeout_sec=timeout_sec)

    async def events(self, *, after: int = 0) -> tuple[Event, ...]:
        """Return the job's events after number `after`, oldest first, at most 500."""
        return await self._jobs.events(self.id, after=after)

    async def report(self) -> Mapping[str, Any]:
        """Return the report of the ended job as a JSON document (see `Jobs.report`)."""
        return await self._jobs.report(self.id)

    async def report_page(self) -> ReportPage:
        """Return the report as a page, which a notebook shows as a cell's value."""
        return await self._jobs.report_page(self.id)

    async def save_report(self, file: Path | str) -> Path:
        """Write the report as one HTML file."""
        return await self._jobs.save_report(self.id, file)

    async def download(
        self, folder: Path | str, *, name: str | None = None, on_progress: ByteProgress | None = None
    ) -> Download:
        """Download the artifact (``NAME.tunefarm``) and the report (``NAME.report.json``, ``NAME.report.html``) into a folder.

        Args:
            folder: Folder for the three files; created if missing.
            name: Name of the artifact's file; the server's name by default. The reports are named after it.
            on_progress: Called with the artifact's bytes so far and its total.

        Raises:
            ConflictError: If the job has not succeeded.
            ProtocolError: ``damaged-download`` if the file does not match the server's SHA-256.
        """
        artifact = await self._jobs.download(self.id, folder, name=name, on_progress=on_progress)
        report = artifact.with_name(f"{artifact.stem}.report.json")
        report.write_text(json.dumps(await self.report(), indent=2) + "\n", encoding="utf-8")
        page = await self.save_report(artifact.with_name(f"{artifact.stem}.report.html"))
        return Download(artifact=artifact, report=report, report_page=page)


def _blocking_handle(handle: AsyncJobHandle) -> JobHandle:
    return JobHandle(handle)


class JobHandle(Blocking[AsyncJobHandle]):
    """A handle of a job on the server. `job` is its state at the last request."""

    @property
    def job(self) -> Job:
        """The job's state at the last request."""
        return self._core.job

    @property
    def id(self) -> str:
        """The job's id, ``job_…``."""
        return self._core.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {line(self.job)}>"

    def _repr_html_(self) -> str:
        return self.job._repr_html_()

    refresh = blocking(AsyncJobHandle.refresh)
    wait = blocking(AsyncJobHandle.wait)
    cancel = blocking(AsyncJobHandle.cancel)
    finish = blocking(AsyncJobHandle.finish)
    compile_now = blocking_as(_blocking_handle, AsyncJobHandle.compile_now)
    change = blocking(AsyncJobHandle.change)
    retry = blocking(AsyncJobHandle.retry)
    pause = blocking(AsyncJobHandle.pause)
    resume = blocking(AsyncJobHandle.resume)
    tasks = blocking(AsyncJobHandle.tasks)
    trials = blocking_each(AsyncJobHandle.trials)
    records = blocking_each(AsyncJobHandle.records)
    save_records = blocking(AsyncJobHandle.save_records)
    source = blocking(AsyncJobHandle.source)
    events = blocking(AsyncJobHandle.events)
    report = blocking(AsyncJobHandle.report)
    report_page = blocking(AsyncJobHandle.report_page)
    save_report = blocking(AsyncJobHandle.save_report)
    download = blocking(AsyncJobHandle.download)


@contextmanager
def _note_on_interrupt(handle: AsyncJobHandle) -> Iterator[None]:
    """Add a note to a Ctrl-C during the block: the job continues, and how to wait for it or cancel it."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(f"Job {handle.id} continues: wait() waits for it again, cancel() ends it.")
        raise


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
