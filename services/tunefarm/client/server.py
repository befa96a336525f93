"""What a server can be asked, over either link: the whole of both clients, but how they are made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunefarm.client.checks import FarmChecks
from tunefarm.client.errors import InvalidRequestError
from tunefarm.client.farm import AsyncDevices, AsyncRecords
from tunefarm.client.handle import AsyncJobHandle
from tunefarm.client.http.streams import ByteProgress
from tunefarm.client.http.transport import Transport
from tunefarm.client.http.waiting import each_of
from tunefarm.client.job_terms import wall_sec_of
from tunefarm.client.jobs import AsyncJobs
from tunefarm.client.keys import AsyncKeys
from tunefarm.client.models import AsyncModels, Shapes
from tunefarm.client.webhooks import AsyncWebhooks
from tunefarm.live.waiting import OF_A_MODEL, live_view, somebody_watches


class AsyncServer:
    """A tunefarm server.

    Args:
        transport: Leads to it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.models = AsyncModels(transport)
        self.jobs = AsyncJobs(transport)
        self.devices = AsyncDevices(transport)
        self.records = AsyncRecords(transport)
        self.keys = AsyncKeys(transport)
        self.webhooks = AsyncWebhooks(transport)

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
        precision: str | None = None,
        options: Mapping[str, Any] | None = None,
        import_timeout_sec: float | None = None,
        on_upload: ByteProgress | None = None,
        progress_bar: bool | None = None,
    ) -> AsyncJobHandle:
        """Upload a model, wait until it is imported, and start a job on it.

        Args:
            model: The ONNX or TFLite file.
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
            precision: How large weights are stored: ``as-model``, ``float16-weights``, ``bfloat16-weights``, ``int8-weights``.
            options: Further options of the server.
            import_timeout_sec: How long to wait for the import.
            on_upload: Called with the bytes sent and the bytes in all.
            progress_bar: Draw how upload and import go on. Left out: in a terminal and in a notebook, where there is
                no `on_upload`.

        Raises:
            ModelFailedError: If the model cannot be imported.
            InvalidRequestError: If the request is wrong.
        """
        wall_sec = wall_sec_of(seconds, minutes)
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
            "precision": precision,
            "options": options,
        }
        await self.jobs.check(**terms)  # a typo shall not cost an upload
        wanted = on_upload is None and somebody_watches() if progress_bar is None else progress_bar
        with live_view(wanted, OF_A_MODEL, Path(model).name) as view:
            sent = each_of(view.on_upload, on_upload)
            uploaded = await self.models.upload(model, name=name, shapes=shapes, on_progress=sent)
            await self.models.wait(uploaded.id, timeout_sec=import_timeout_sec, on_progress=view.on_model)
        return AsyncJobHandle(self.jobs, await self.jobs.create(uploaded.id, **terms))
