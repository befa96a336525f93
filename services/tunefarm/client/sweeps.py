"""``client.sweeps``: several jobs at once, with one budget."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

from tunefarm.client.errors import UnavailableError
from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import Page, get_page, walk
from tunefarm.client.http.transport import Resource, segment
from tunefarm.client.http.waiting import wait_until
from tunefarm.client.job_terms import JobTerms, SweepTerms, job_json, takes_terms, texts
from tunefarm.client.keywords import check_names
from tunefarm.client.results.shown import ReportPage
from tunefarm.client.results.sweeps import Sweep


class AsyncSweeps(Resource):
    """The server's sweeps."""

    @takes_terms(SweepTerms)
    async def create(
        self,
        model_ids: Sequence[str],
        *,
        device_keys: Sequence[str] = (),
        precisions: Sequence[str] = (),
        samples: Mapping[str, Sequence[str]] | None = None,
        refused: Sequence[Mapping[str, str]] = (),
        tags: Sequence[str] = (),
        note: str = "",
        idempotency_key: str | None = None,
        **terms: Unpack[SweepTerms],
    ) -> Sweep:
        """Create a job for each combination of a model, a pool and a precision, at most 64.

        The budget is the sweep's. Pools work side by side: each has all of the time, which its jobs share equally. All jobs
        share the trials equally; patience and minimum gain apply to each job by itself.

        Args:
            model_ids: Imported models: ids, ``name@version`` or names.
            device_keys: Pools; by default the only one.
            precisions: Formats of stored weights; by default the models' own.
            samples: Ids of checked samples (`client.samples.upload_all`) by the model that they belong to, named as in `model_ids`.
            refused: Files that are not among the models, which get a row with the reason: ``name``, ``code`` and ``message`` of each.
            tags: Words to find the sweep and its jobs by.
            note: A text for people.
            idempotency_key: Requests with equal keys create one sweep; a new key by default.
            **terms

        Raises:
            InvalidRequestError: ``empty-sweep`` if no combination can be tuned; ``too-many-jobs``; if a term is wrong.
            ConflictError: If a model is still being imported.
            TypeError: If there is no such term; pools and precisions have arguments of their own.
        """
        check_names(terms, SweepTerms)
        body = {
            "model_ids": texts(model_ids),
            "device_keys": texts(device_keys),
            "precisions": texts(precisions),
            **({"samples": {model: texts(ids) for model, ids in samples.items()}} if samples else {}),
            "refused": [dict(file) for file in refused],
            "tags": texts(tags),
            "note": note,
            **job_json(cast("JobTerms", terms)),  # a sweep's terms are some of a job's
        }
        return Sweep.read(await self._transport.post("sweeps", body, key=idempotency_key or uuid.uuid4().hex))

    async def get(self, sweep_id: str) -> Sweep:
        """Return a sweep with its combinations, as they are now.

        Raises:
            NotFoundError: If there is no such sweep.
        """
        return Sweep.read(await self._transport.get(f"sweeps/{segment(sweep_id)}"))

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[Sweep]:
        """Return a page of sweeps, newest first, without their combinations.

        Args:
            limit: Maximum number of items, up to 500.
            cursor: `Page.next_cursor` of the previous page.
        """
        return await get_page(self._transport, "sweeps", {"limit": limit, "cursor": cursor}, Sweep.read)

    def all(self) -> AsyncIterator[Sweep]:
        """Yield every sweep, page by page, newest first, without their combinations."""
        return walk(self._transport, "sweeps", {"limit": 100}, Sweep.read)

    async def cancel(self, sweep_id: str) -> Sweep:
        """Cancel all jobs of a sweep that have not ended. Records stay, and so do the artifacts of those that have.

        Raises:
            NotFoundError: If there is no such sweep.
        """
        return Sweep.read(await self._transport.post(f"sweeps/{segment(sweep_id)}/cancel", repeatable=True))

    async def wait(
        self,
        sweep_id: str,
        *,
        on_progress: Callable[[Sweep], None] | None = None,
        on_away: Callable[[UnavailableError], None] | None = None,
        timeout_sec: float | None = None,
        poll_sec: float = 2.0,
    ) -> Sweep:
        """Wait until all jobs of a sweep have ended, and return it. How they ended is in its combinations.

        Args:
            sweep_id: The sweep.
            on_progress: Called with the sweep after every look.
            on_away: Called with the error when the server does not answer.
            timeout_sec: Longest wait; None for no limit.
            poll_sec: Seconds between looks at most; at first they are shorter.

        Raises:
            WaitTimeoutError: If it takes longer.
        """
        return await wait_until(
            self._transport.link,
            lambda: self.get(sweep_id),
            lambda sweep: sweep.state != "running",
            on_progress=on_progress,
            on_away=on_away,
            timeout_sec=timeout_sec,
            poll_sec=poll_sec,
            too_long=f"sweep {sweep_id} has not ended",
        )

    async def report(self, sweep_id: str) -> Mapping[str, Any]:
        """Return the report of a sweep, at any time: state, latency and ratios of each combination.

        Raises:
            NotFoundError: If there is no such sweep.
        """
        return Sweep.read(await self._transport.get(f"sweeps/{segment(sweep_id)}/report")).raw

    async def report_page(self, sweep_id: str) -> ReportPage:
        """Return the report as one HTML page, which a notebook shows."""
        return ReportPage(html=await self._transport.text(f"sweeps/{segment(sweep_id)}/report.html"))

    async def save_report(self, sweep_id: str, file: Path | str) -> Path:
        """Write the report as one self-contained HTML file, and return its path.

        Args:
            sweep_id: The sweep.
            file: File to write; an existing file is replaced.
        """
        path = Path(file)
        await self._transport.download(f"sweeps/{segment(sweep_id)}/report.html", path, None)
        return path


class Sweeps(Blocking[AsyncSweeps]):
    """The server's sweeps."""

    create = blocking(AsyncSweeps.create)
    get = blocking(AsyncSweeps.get)
    list = blocking(AsyncSweeps.list)
    all = blocking_each(AsyncSweeps.all)
    cancel = blocking(AsyncSweeps.cancel)
    wait = blocking(AsyncSweeps.wait)
    report = blocking(AsyncSweeps.report)
    report_page = blocking(AsyncSweeps.report_page)
    save_report = blocking(AsyncSweeps.save_report)
