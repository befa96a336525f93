"""``client.jobs``: create, list and change jobs; `job_results` reads their trials, records, events and results."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Unpack

from tunefarm.client.filters import PAGE_OF_ALL, JobFilters, filter_query, takes_filters
from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import Page, get_page, walk
from tunefarm.client.http.transport import Query, segment
from tunefarm.client.job_results import AsyncJobResults
from tunefarm.client.job_terms import JobChanges, JobTerms, change_json, job_json, takes_terms, texts
from tunefarm.client.results.jobs import Job


class AsyncJobs(AsyncJobResults):
    """The server's tuning jobs."""

    @takes_terms(JobTerms)
    async def create(
        self,
        model_id: str,
        *,
        samples: Sequence[str] = (),
        tags: Sequence[str] = (),
        note: str = "",
        idempotency_key: str | None = None,
        **terms: Unpack[JobTerms],
    ) -> Job:
        """Create a job. At least one limit is required, `minutes` for example.

        Args:
            model_id: Imported model to tune.
            samples: Ids of samples of the model, which must be ready (see `client.samples`).
            tags: Words to find the job by.
            note: A text for people.
            idempotency_key: Requests with equal keys create one job; a new key by default.
            **terms

        Raises:
            InvalidRequestError: If the server refuses the request; the code says why.
            ConflictError: If the model or its samples are not ready.
        """
        body = {
            "model_id": model_id,
            **_sent(samples=texts(samples), tags=texts(tags), note=note),
            **job_json(terms),
        }
        return Job.read(await self._transport.post("jobs", body, key=idempotency_key or uuid.uuid4().hex))

    @takes_terms(JobTerms)
    async def check(self, *, tags: Sequence[str] = (), note: str = "", **terms: Unpack[JobTerms]) -> None:
        """Check the terms and labels of a job on the server, before the upload of its model. Creates nothing.

        Args:
            tags: Words to find the job by.
            note: A text for people.
            **terms

        Raises:
            InvalidRequestError: If the server would refuse the request; the code says why.
            ConflictError: If no device has been registered yet.
        """
        body = {**_sent(tags=texts(tags), note=note), **job_json(terms)}
        await self._transport.post("jobs/check", body, repeatable=True)

    async def get(self, job_id: str) -> Job:
        """Return the current state of a job.

        Raises:
            NotFoundError: If there is no such job.
        """
        return Job.read(await self._transport.get(f"jobs/{segment(job_id)}"))

    @takes_filters(JobFilters)
    async def list(
        self, *, limit: int = 100, cursor: str | None = None, **filters: Unpack[JobFilters]
    ) -> Page[Job]:
        """Return a page of jobs, newest first unless another order is given.

        Args:
            **filters
            limit: Maximum number of items, up to 500.
            cursor: `Page.next_cursor` of the previous page.
        """
        query = {**filter_query(filters, JobFilters), "limit": limit, "cursor": cursor}
        return await get_page(self._transport, "jobs", query, Job.read)

    @takes_filters(JobFilters)
    def all(self, **filters: Unpack[JobFilters]) -> AsyncIterator[Job]:
        """Yield every job, page by page, newest first unless another order is given.

        Args:
            **filters
        """
        query = {**filter_query(filters, JobFilters), "limit": PAGE_OF_ALL}
        return walk(self._transport, "jobs", query, Job.read)

    async def cancel(self, job_id: str) -> Job:
        """Request a job's cancellation, which may take some seconds. Its records stay.

        Of a job that has ended, a measurement of its artifact that is under way is cancelled.
        """
        return Job.read(await self._transport.post(f"jobs/{segment(job_id)}/cancel", repeatable=True))

    async def finish(self, job_id: str) -> Job:
        """End a job's search now, and compile the best so far. Its running round is dropped; a paused job is resumed.

        A job that compiles, or has ended, does not change.
        """
        return Job.read(await self._transport.post(f"jobs/{segment(job_id)}/finish", repeatable=True))

    async def compile_now(self, job_id: str) -> Job:
        """Start a job that compiles what is on record for a job so far, and return it; the first job goes on.

        While such a job is under way, it is returned again.

        Args:
            job_id: The job, in any state.

        Raises:
            NotFoundError: If there is no such job, or its model was deleted.
        """
        return Job.read(await self._transport.post(f"jobs/{segment(job_id)}/compile", repeatable=True))

    async def again(self, job_id: str, *, only_if_changed: bool = False) -> Job:
        """Start a job with the model, terms, samples, tags and note of one that has ended, and return it.

        While a job on these terms is under way, that one is returned, and no other is started.

        Args:
            job_id: The job.
            only_if_changed: Start none if the newest artifact of these terms was made by the versions of TVM and tunefarm that the
                farm has: the job with that artifact is returned.

        Raises:
            ConflictError: ``not-finished``.
            NotFoundError: If there is no such job, or its model or samples were deleted.
        """
        query: Query = {"only_if_changed": "true" if only_if_changed else None}
        path = f"jobs/{segment(job_id)}/again"
        return Job.read(await self._transport.post(path, query=query, repeatable=True))

    async def pause(self, job_id: str) -> Job:
        """Pause a job. Its running step ends within seconds, and it spends no budget until `resume`.

        Raises:
            ConflictError: If it has ended.
        """
        return Job.read(await self._transport.post(f"jobs/{segment(job_id)}/pause", repeatable=True))

    async def resume(self, job_id: str) -> Job:
        """Resume a paused job. Other unfinished jobs do not change.

        Raises:
            ConflictError: If it has ended.
        """
        return Job.read(await self._transport.post(f"jobs/{segment(job_id)}/resume", repeatable=True))

    @takes_terms(JobChanges)
    async def change(self, job_id: str, **changes: Unpack[JobChanges]) -> Job:
        """Change a job that has not ended, or the tags and note of any job. Omitted terms stay.

        Limits are for the whole job and apply after its current round. If a limit has ended the search, raising it
        continues the search.

        Args:
            job_id: The job.
            **terms

        Raises:
            ConflictError: If the job has ended, or (``search-ended``) the budget has no effect any more.
            InvalidRequestError: If there is no such priority or budget.
        """
        return Job.read(await self._transport.patch(f"jobs/{segment(job_id)}", change_json(changes)))

    async def retry(self, job_id: str) -> Job:
        """Retry the failed step of a failed job. Completed work is not repeated.

        Raises:
            ConflictError: If the job succeeded or was cancelled.
        """
        return Job.read(await self._transport.post(f"jobs/{segment(job_id)}/retry", repeatable=True))


def _sent(**optional: object) -> dict[str, object]:
    """Return the members to send: servers of older releases know neither samples nor labels."""
    return {name: value for name, value in optional.items() if value}


class Jobs(Blocking[AsyncJobs]):
    """The server's tuning jobs."""

    create = blocking(AsyncJobs.create)
    check = blocking(AsyncJobs.check)
    get = blocking(AsyncJobs.get)
    list = blocking(AsyncJobs.list)
    all = blocking_each(AsyncJobs.all)
    cancel = blocking(AsyncJobs.cancel)
    finish = blocking(AsyncJobs.finish)
    compile_now = blocking(AsyncJobs.compile_now)
    again = blocking(AsyncJobs.again)
    pause = blocking(AsyncJobs.pause)
    resume = blocking(AsyncJobs.resume)
    change = blocking(AsyncJobs.change)
    retry = blocking(AsyncJobs.retry)
    measure = blocking(AsyncJobs.measure)
    measurements = blocking(AsyncJobs.measurements)
    tasks = blocking(AsyncJobs.tasks)
    trials = blocking_each(AsyncJobs.trials)
    records = blocking_each(AsyncJobs.records)
    save_records = blocking(AsyncJobs.save_records)
    source = blocking(AsyncJobs.source)
    events = blocking(AsyncJobs.events)
    trace = blocking(AsyncJobs.trace)
    compare = blocking(AsyncJobs.compare)
    report = blocking(AsyncJobs.report)
    report_page = blocking(AsyncJobs.report_page)
    save_report = blocking(AsyncJobs.save_report)
    download = blocking(AsyncJobs.download)
    envelope = blocking(AsyncJobs.envelope)
