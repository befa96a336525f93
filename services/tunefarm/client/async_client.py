"""The client for programs that await: one object for one server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from tunefarm.client.checks import FarmChecks
from tunefarm.client.errors import InvalidRequestError
from tunefarm.client.farm import AsyncDevices, AsyncRecords
from tunefarm.client.handle import AsyncJobHandle
from tunefarm.client.jobs import AsyncJobs
from tunefarm.client.keys import AsyncKeys
from tunefarm.client.links import AsyncLink, Link
from tunefarm.client.models import AsyncModels, Shapes
from tunefarm.client.retry import RetryPolicy
from tunefarm.client.streams import ByteProgress
from tunefarm.client.transport import Transport
from tunefarm.client.webhooks import AsyncWebhooks


class AsyncClient:
    """A tunefarm server, from Python that awaits. It has what `tunefarm.Client` has.

    ::

        async with tunefarm.AsyncClient("http://127.0.0.1:8000", api_key) as client:
            job = await client.tune("model.onnx", seconds=600)
            await job.wait(lambda job: print(job.state, job.trials, job.best_latency_sec))
            print((await job.download("out")).artifact)

    Progress is told to plain functions, in the event loop: they shall return soon.

    Concurrency: any number of tasks of one event loop (asyncio) at once.
    Failure: methods raise `tunefarm.client.ClientError` and nothing else for what the server or the network did;
        reads and repeatable requests were tried again with backoff before that.

    Args:
        url: Where the API answers; ``TUNEFARM_URL`` where it is left out.
        api_key: ``tfk_…``; ``TUNEFARM_API_KEY`` where it is left out.
        timeout_sec: Longest silence of the server in one request.
        retry: When a failed request is sent again.
    """

    _make_link: ClassVar[Callable[..., Link]] = AsyncLink

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_sec: float = 60.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        url = url or os.environ.get("TUNEFARM_URL")
        if not url:
            raise InvalidRequestError(
                "no server is given: pass its URL, or set TUNEFARM_URL", code="no-server"
            )
        self._transport = Transport(
            self._make_link,
            url,
            api_key or os.environ.get("TUNEFARM_API_KEY"),
            timeout_sec=timeout_sec,
            retry=retry or RetryPolicy(),
        )
        self.models = AsyncModels(self._transport)
        self.jobs = AsyncJobs(self._transport)
        self.devices = AsyncDevices(self._transport)
        self.records = AsyncRecords(self._transport)
        self.keys = AsyncKeys(self._transport)
        self.webhooks = AsyncWebhooks(self._transport)

    @property
    def url(self) -> str:
        return self._transport.url

    def __repr__(self) -> str:
        return f"<tunefarm.AsyncClient {self.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the client cannot be used after it."""
        await self._transport.link.close()

    async def checks(self) -> FarmChecks:
        """Have the server examine the farm: database, broker, tracker, devices, store and so on. Takes some seconds."""
        return FarmChecks.read(await self._transport.get("checks"))

    async def job(self, job_id: str) -> AsyncJobHandle:
        """Return a handle of a job that exists."""
        return AsyncJobHandle(self.jobs, await self.jobs.get(job_id))

    async def tune(
        self,
        model: Path | str,
        *,
        target: str | Mapping[str, Any] | None = None,
        device_key: str | None = None,
        trials: int | None = None,
        seconds: float | None = None,
        minutes: float | None = None,
        patience: int | None = None,
        min_gain: float | None = None,
        tuner: str | None = None,
        seed: int | None = None,
        priority: int | str | None = None,
        shapes: Shapes | None = None,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        import_timeout_sec: float | None = None,
        on_upload: ByteProgress | None = None,
    ) -> AsyncJobHandle:
        """Upload a model, wait until it is imported, and start a job on it.

        Args:
            model: The ONNX file.
            target: What to compile for; the devices' own target where it is left out.
            device_key: The pool that measures.
            trials: Budget: candidates to try.
            seconds: Budget: wall-clock to search.
            minutes: The same in minutes; added to `seconds`.
            patience: Budget: stop after so many trials without a better kernel.
            min_gain: Budget: stop when a minute of search is expected to make the model less than this share
                faster (0.01: one percent).
            tuner: Search strategy.
            seed: Seed of the search.
            priority: ``low``, ``normal``, ``high`` or a number: jobs with a higher one get devices first.
            shapes: Shapes of inputs with dynamic dimensions.
            name: What to call the model.
            options: Further options of the server.
            import_timeout_sec: How long to wait for the import.
            on_upload: Called with the bytes sent and the bytes in all.

        Raises:
            ModelFailedError: If the model cannot be imported.
            InvalidRequestError: If the request is wrong.
        """
        wall_sec = None if seconds is None and minutes is None else (seconds or 0.0) + 60.0 * (minutes or 0.0)
        if all(limit is None for limit in (trials, wall_sec, patience, min_gain)):
            raise InvalidRequestError(
                "the budget is empty: give at least one of trials, seconds, minutes, patience, min_gain",
                code="invalid-budget",
            )
        terms: dict[str, Any] = {
            "target": target,
            "device_key": device_key,
            "trials": trials,
            "seconds": wall_sec,
            "patience": patience,
            "min_gain": min_gain,
            "tuner": tuner,
            "seed": seed,
            "priority": priority,
            "options": options,
        }
        await self.jobs.check(**terms)  # a typo shall not cost an upload
        uploaded = await self.models.upload(model, name=name, shapes=shapes, on_progress=on_upload)
        await self.models.wait(uploaded.id, timeout_sec=import_timeout_sec)
        return AsyncJobHandle(self.jobs, await self.jobs.create(uploaded.id, **terms))
