"""What ``client.jobs`` reads of a job: its kernels, trials, records, events, measurements, report and artifact."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunefarm.client.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    ProtocolError,
    WaitTimeoutError,
)
from tunefarm.client.http.links import Link
from tunefarm.client.http.paging import get_all, get_page, walk
from tunefarm.client.http.streams import ByteProgress, file_name, sha256_tag
from tunefarm.client.http.transport import Query, Resource, segment
from tunefarm.client.http.waiting import wait_until
from tunefarm.client.job_terms import baseline_names, texts
from tunefarm.client.results.artifacts import Measurements
from tunefarm.client.results.comparison import JobComparison
from tunefarm.client.results.jobs import Event, JobTask, Record, Trial
from tunefarm.client.results.shown import ReportPage

_SOURCE_POLL_SEC = 0.5
_MEASURE_POLL_SEC = 0.5
_DOWNLOAD_TRIES = 4


class AsyncJobResults(Resource):
    """The part of the server's tuning jobs that is read."""

    @property
    def link(self) -> Link:
        """The link to the server."""
        return self._transport.link

    async def measure(
        self, job_id: str, *, baselines: str | Sequence[str] = (), timeout_sec: float | None = None
    ) -> Measurements:
        """Measure a job's artifact again, on a device of its pool, and wait for the result.

        Its network as TVM compiles it untuned and ONNX Runtime are timed beside it, as at the compile. The latest measurement on a
        quiet device is what the report, pages and lists show, unless it timed fewer networks than the shown one.

        Args:
            job_id: A job that succeeded.
            baselines: Other runtimes to time beside it from now on, with those of the job: a list of names, or a text with commas, as
                the job's term `baselines`.
            timeout_sec: Longest wait; None for no limit, 0 for no wait.

        Raises:
            ConflictError: If the job has no artifact; (``measurement-failed``) if it could not be measured.
            WaitTimeoutError: If it takes longer than `timeout_sec`. The measurement goes on.
        """
        asked = Measurements.read(
            await self._transport.post(
                f"jobs/{segment(job_id)}/measure",
                {"baselines": names} if (names := baseline_names(baselines)) else None,
                repeatable=True,
            )
        )
        if timeout_sec == 0:
            return asked
        done = await wait_until(
            self.link,
            lambda: self.measurements(job_id),
            lambda measurements: not measurements.is_open,
            on_progress=None,
            timeout_sec=timeout_sec,
            poll_sec=_MEASURE_POLL_SEC,
            too_long=f"the artifact of job {job_id} is not measured",
        )
        if done.state == "failed":
            why = done.error.message if done.error else "the server gave no reason"
            raise ConflictError(f"the artifact could not be measured: {why}", code="measurement-failed")
        return done

    async def measurements(self, job_id: str) -> Measurements:
        """Return the measurements of a job's artifact: that of the compile, and the newest 20; none without an artifact."""
        return Measurements.read(await self._transport.get(f"jobs/{segment(job_id)}/measurements"))

    async def tasks(self, job_id: str) -> tuple[JobTask, ...]:
        """Return the job's kernels and their progress; none before they are extracted."""
        return await get_all(self._transport, f"jobs/{segment(job_id)}/tasks", {}, JobTask.read)

    def trials(self, job_id: str) -> AsyncIterator[Trial]:
        """Yield the job's trials in order of measurement."""
        return walk(self._transport, f"jobs/{segment(job_id)}/trials", {"limit": 500}, Trial.read)

    def records(self, job_id: str) -> AsyncIterator[Record]:
        """Yield the job's records."""
        return walk(self._transport, f"jobs/{segment(job_id)}/records", {"limit": 500}, Record.read)

    async def save_records(self, job_id: str, file: Path | str) -> Path:
        """Write the job's records as JSON lines for `tunefarm_tuning.load_records`, and return the file's path.

        Args:
            job_id: The job, in any state.
            file: File to write; an existing file is replaced.
        """
        path = Path(file)
        await self._transport.download(f"jobs/{segment(job_id)}/records.jsonl", path, None)
        return path

    async def source(
        self, job_id: str, position: int, *, kind: str = "schedule", timeout_sec: float = 120.0
    ) -> str:
        """Return the source of a kernel's best config. A worker generates it at the first request, within seconds.

        Args:
            job_id: The job, in any state.
            position: Index of the task in the job.
            kind: ``schedule`` (scheduled TensorIR, as TVMScript); for CPUs ``llvm`` or ``asm``, for GPUs ``cuda``.
            timeout_sec: Longest wait for a worker.

        Raises:
            NotFoundError: ``no-such-source`` if the kernel has no source of this kind.
            ConflictError: ``no-kernel`` if no config was tried, or none has worked yet; ``source-not-made`` if it cannot be generated,
                with a ``reason`` in the fields.
            WaitTimeoutError: If it is not generated in time.
        """
        path, query = f"jobs/{segment(job_id)}/tasks/{int(position)}/source", {"kind": kind}
        until = time.monotonic() + timeout_sec
        while True:
            try:
                return await self._transport.text(path, query)
            except ConflictError as error:
                if error.code != "source-being-made":
                    raise
                if time.monotonic() >= until:
                    raise WaitTimeoutError(
                        f"after {timeout_sec:g} s {error.detail}", code="wait-timeout"
                    ) from error
            await self.link.sleep(_SOURCE_POLL_SEC)

    async def events(self, job_id: str, *, after: int = 0) -> tuple[Event, ...]:
        """Return at most 500 of the job's events, oldest first.

        Args:
            job_id: The job.
            after: `Event.seq` of the last event that is known; 0 for the job's first events.
        """
        path = f"jobs/{segment(job_id)}/events"
        return (await get_page(self._transport, path, {"after": after}, Event.read)).items

    async def trace(self, job_id: str) -> Mapping[str, Any]:
        """Return where every second of a job went, as a Chrome trace: ``traceEvents``, and ``otherData`` with ``seconds`` by kind.

        Args:
            job_id: The job, in any state.
        """
        return await self._object(f"jobs/{segment(job_id)}/trace")

    async def report(self, job_id: str) -> Mapping[str, Any]:
        """Return the report of an ended job: latencies, kernels, checks, coverage, outcomes and records.

        Raises:
            ConflictError: If the job has not ended.
        """
        return await self._object(f"jobs/{segment(job_id)}/report")

    async def compare(self, job_ids: Sequence[str]) -> JobComparison:
        """Return two to six jobs side by side: their results, curves and kernels, in the order given.

        Raises:
            NotFoundError: If there is no such job.
            InvalidRequestError: If there are fewer, more, or one twice.
        """
        return JobComparison.read(await self._transport.get("jobs/compare", {"job": texts(job_ids)}))

    async def _object(self, path: str) -> Mapping[str, Any]:
        document = await self._transport.get(path)
        if not isinstance(document, dict):
            raise ProtocolError("the server's answer is not a JSON object", code="bad-answer")
        return document

    async def report_page(self, job_id: str) -> ReportPage:
        """Return the report as one HTML page, which a notebook shows (see `save_report` for a file).

        Raises:
            ConflictError: If the job has not ended.
        """
        return ReportPage(html=await self._transport.text(f"jobs/{segment(job_id)}/report.html"))

    async def save_report(self, job_id: str, file: Path | str) -> Path:
        """Write the report as one self-contained HTML file, and return its path.

        Args:
            job_id: The job.
            file: File to write; an existing file is replaced.

        Raises:
            ConflictError: If the job has not ended.
        """
        path = Path(file)
        await self._transport.download(f"jobs/{segment(job_id)}/report.html", path, None)
        return path

    async def download(
        self,
        job_id: str,
        folder: Path | str,
        *,
        name: str | None = None,
        so_far: bool = False,
        on_progress: ByteProgress | None = None,
    ) -> Path:
        """Download the artifact into `folder` and return its path. An existing file is replaced.

        If the farm signs its results, the signed statement about the artifact is written beside it, as
        ``NAME.tunefarm.intoto.jsonl``, for `tunefarm verify` and `tunefarm.load`; a statement about the file that was there is removed.

        Args:
            job_id: A job that succeeded; with `so_far` any that has a draft (`Job.draft`).
            folder: Created if missing.
            name: Name of the file; the server's name by default.
            so_far: Download the draft if there is no artifact: untuned from the job's first seconds on.
            on_progress: Called with the bytes received and the bytes in all.

        Raises:
            ConflictError: If the job has no artifact (yet).
            ProtocolError: If the SHA-256 of the received file is wrong.
        """
        folder = Path(folder)
        if name is not None and (name in ("", ".", "..") or Path(name).name != name):
            raise InvalidRequestError(f"{name!r} is not the name of a file", code="bad-name")
        target = folder / (name or f"{job_id}.tunefarm")
        query: Query = {"so_far": True} if so_far else {}
        path = f"jobs/{segment(job_id)}/artifact"
        for tries_left in reversed(range(_DOWNLOAD_TRIES)):
            headers = await self._transport.download(path, target, on_progress, query)
            try:
                envelope = await self._envelope(job_id, {**query, "sha256": sha256_tag(headers)})
                break
            except NotFoundError as error:  # a better draft, or the artifact, has come meanwhile
                if error.code != "artifact-replaced" or not tries_left:
                    raise
        if name is None and (server_name := file_name(headers.get("Content-Disposition", ""))):
            target = target.replace(folder / server_name)
        beside = target.with_name(f"{target.name}.intoto.jsonl")
        if envelope is None:
            beside.unlink(missing_ok=True)
        else:
            _replace(beside, envelope)
        return target

    async def envelope(self, job_id: str, *, so_far: bool = False) -> str | None:
        """Return the signed statement about a job's artifact (a DSSE envelope, as a line of JSON); None if it is not signed.

        Args:
            job_id: A job that succeeded; with `so_far` any that has a draft.
            so_far: Whether the statement about the draft will do.

        Raises:
            ConflictError: If the job has no artifact (yet).
        """
        return await self._envelope(job_id, {"so_far": True} if so_far else {})

    async def _envelope(self, job_id: str, query: Query) -> str | None:
        try:
            return await self._transport.text(f"jobs/{segment(job_id)}/artifact.intoto.jsonl", query)
        except NotFoundError as error:
            if error.code in ("not-signed", "no-such-route"):  # the latter of an older server
                return None
            raise


def _replace(path: Path, text: str) -> None:
    """Replace a file by one with this text; it is never half written."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
