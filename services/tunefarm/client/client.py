"""The two clients, `Client` and `AsyncClient`: each is one object for one server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self, Unpack

from tunefarm.client.audit import AsyncAudit, Audit
from tunefarm.client.devices import AsyncDevices, Devices
from tunefarm.client.handle import AsyncJobHandle, JobHandle
from tunefarm.client.http.blocking import Blocking, blocking, blocking_as
from tunefarm.client.http.connection import find_server
from tunefarm.client.http.links import AsyncLink, BlockingLink, Link
from tunefarm.client.http.retry import RetryPolicy
from tunefarm.client.http.streams import ByteProgress
from tunefarm.client.http.transport import Transport
from tunefarm.client.http.waiting import each_of
from tunefarm.client.job_terms import CompileTerms, JobTerms, takes_terms
from tunefarm.client.jobs import AsyncJobs, Jobs
from tunefarm.client.keys import AsyncKeys, Keys
from tunefarm.client.keywords import check_names
from tunefarm.client.models import AsyncModels, Models, Shapes, Values
from tunefarm.client.records import AsyncRecords, Records
from tunefarm.client.results.reading import Answer, Result
from tunefarm.client.samples import AsyncSamples, SamplePaths, Samples, sample_paths
from tunefarm.client.signing import AsyncSigning, Signing
from tunefarm.client.sweeps import AsyncSweeps, Sweeps
from tunefarm.client.webhooks import AsyncWebhooks, Webhooks
from tunefarm.live.waiting import OF_A_MODEL, live_view, somebody_watches


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmCheck(Result):
    """A check of the farm. `verdict` is ``ok``, ``warning`` or ``failed``; `advice` says what to do."""

    check: str
    verdict: str
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmChecks(Answer):
    """State of the whole farm. `ok` means that no check failed; `time` is the server's clock, Unix seconds."""

    ok: bool = False
    time: float
    checks: tuple[FarmCheck, ...] = ()


class AsyncServer:
    """A tunefarm server.

    Args:
        transport: Leads to it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.models = AsyncModels(transport)
        self.samples = AsyncSamples(transport)
        self.jobs = AsyncJobs(transport)
        self.sweeps = AsyncSweeps(transport)
        self.devices = AsyncDevices(transport)
        self.records = AsyncRecords(transport)
        self.keys = AsyncKeys(transport)
        self.audit = AsyncAudit(transport)
        self.signing = AsyncSigning(transport)
        self.webhooks = AsyncWebhooks(transport)

    async def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        await self._transport.link.close()

    async def checks(self) -> FarmChecks:
        """Return the server's checks of the farm (database, broker, devices and so on). Takes some seconds."""
        return FarmChecks.read(await self._transport.get("checks"))

    async def job(self, job_id: str) -> AsyncJobHandle:
        """Return a handle of an existing job."""
        return AsyncJobHandle(self.jobs, await self.jobs.get(job_id))

    @takes_terms(JobTerms)
    async def tune(
        self,
        model: Path | str,
        *,
        shapes: Shapes | None = None,
        values: Values | None = None,
        name: str | None = None,
        samples: SamplePaths | None = None,
        tags: Sequence[str] = (),
        note: str = "",
        import_timeout_sec: float | None = None,
        on_upload: ByteProgress | None = None,
        progress_bar: bool | None = None,
        **terms: Unpack[JobTerms],
    ) -> AsyncJobHandle:
        """Upload a model, wait until it is imported, and start a job on it.

        At least one limit is required, `minutes` for example. The first limit reached ends the search.

        Args:
            model: The ONNX or TFLite file.
            shapes: Shapes of inputs with dynamic dimensions (``{"x": (1, 3, 224, 224)}``).
            values: Values of inputs that decide the network and become constants (``{"sr": 16000}``).
            name: Name of the model; the file's name by default.
            samples: Real inputs: a ``.npz`` file, or several (see `client.samples`). The artifact is compared on them first,
                and timed on the first of them.
            tags: Words to find the job by.
            note: A text for people.
            import_timeout_sec: Longest wait for the import; None for no limit.
            on_upload: Called with the bytes sent and the bytes in all.
            progress_bar: Whether to show progress bars. By default, in terminals and notebooks without `on_upload`.
            **terms

        Raises:
            ModelFailedError: If the model cannot be imported.
            InvalidRequestError: If the request is wrong, or the samples do not fit the model.
            FileNotFoundError: If there is no such file.
            TypeError: If there is no such term.
        """
        check_names(terms, JobTerms)
        await self.jobs.check(tags=tags, note=note, **terms)  # a typo must not cost an upload
        for path in sample_paths(samples):
            await self.jobs.link.run(path.stat)
        is_drawn = on_upload is None and somebody_watches() if progress_bar is None else progress_bar
        with live_view(is_drawn, OF_A_MODEL, Path(model).name) as view:
            on_progress = each_of(view.on_upload, on_upload)
            uploaded = await self.models.upload(
                model, name=name, shapes=shapes, values=values, on_progress=on_progress
            )
            await self.models.wait(uploaded.id, timeout_sec=import_timeout_sec, on_progress=view.on_model)
        samples_ids = await self.samples.upload_all(uploaded.id, samples)
        job = await self.jobs.create(uploaded.id, samples=samples_ids, tags=tags, note=note, **terms)
        return AsyncJobHandle(self.jobs, job)

    @takes_terms(CompileTerms)
    async def compile(
        self,
        model: Path | str,
        *,
        shapes: Shapes | None = None,
        values: Values | None = None,
        name: str | None = None,
        samples: SamplePaths | None = None,
        tags: Sequence[str] = (),
        note: str = "",
        import_timeout_sec: float | None = None,
        on_upload: ByteProgress | None = None,
        progress_bar: bool | None = None,
        **terms: Unpack[CompileTerms],
    ) -> AsyncJobHandle:
        """Upload a model, wait until it is imported, and start a job that compiles it without a search.

        Each kernel uses the best record of all earlier jobs; without a record, it stays untuned. The handle, its
        artifact and its report are like those of `tune`.

        Args:
            model: The ONNX or TFLite file.
            shapes: Shapes of inputs with dynamic dimensions (``{"x": (1, 3, 224, 224)}``).
            values: Values of inputs that decide the network and become constants (``{"sr": 16000}``).
            name: Name of the model; the file's name by default.
            samples: Real inputs, as for `tune`.
            tags: Words to find the job by.
            note: A text for people.
            import_timeout_sec: Longest wait for the import; None for no limit.
            on_upload: Called with the bytes sent and the bytes in all.
            progress_bar: Whether to show progress bars, as for `tune`.
            **terms

        Raises:
            ModelFailedError: If the model cannot be imported.
            InvalidRequestError: If the request is wrong, or the samples do not fit the model.
            FileNotFoundError: If there is no such file.
        """
        check_names(terms, CompileTerms)
        return await self.tune(
            model,
            shapes=shapes,
            values=values,
            name=name,
            samples=samples,
            tags=tags,
            note=note,
            import_timeout_sec=import_timeout_sec,
            on_upload=on_upload,
            progress_bar=progress_bar,
            search=False,
            **terms,
        )


class _Connected:
    """The connection of both clients. A subclass chooses the link and opens the resources."""

    _make_link: ClassVar[Callable[..., Link]]

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_sec: float = 60.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Create a client. It connects at its first use.

        Args:
            url: URL of the server. By default ``TUNEFARM_URL``, else the farm that `tunefarm serve` runs for this user
                on this machine.
            api_key: API key, ``tfk_…``. By default ``TUNEFARM_API_KEY``, else the key of the farm on this machine, if
                that is used.
            timeout_sec: Longest silence of the server in one request.
            retry: Policy for retries of failed requests.

        Raises:
            InvalidRequestError: ``no-server`` if none is configured and none runs here.
        """
        transport = Transport(
            self._make_link, *find_server(url, api_key), timeout_sec=timeout_sec, retry=retry or RetryPolicy()
        )
        self.url = transport.url
        self._open(transport)

    def _open(self, transport: Transport) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<tunefarm.{type(self).__name__} {self.url}>"


class Client(_Connected, Blocking[AsyncServer]):
    """A client of a tunefarm server.

    ::

        client = tunefarm.Client()  # the farm of `tunefarm serve`; or Client("http://10.0.0.5:8000", api_key)
        job = client.tune("model.onnx", target="host", minutes=10)
        job.wait()
        print(job.download("out").artifact)

    Use it in a ``with`` block, or without one.

    Concurrency: one thread at a time; a client per thread is cheap.
    Failure: methods raise `tunefarm.client.ClientError` for all errors of the server and the network, after retries
        with backoff of reads and repeatable requests.
    """

    _make_link = BlockingLink

    def _open(self, transport: Transport) -> None:
        server = AsyncServer(transport)
        Blocking.__init__(self, server)
        self.models = Models(server.models)
        self.samples = Samples(server.samples)
        self.jobs = Jobs(server.jobs)
        self.sweeps = Sweeps(server.sweeps)
        self.devices = Devices(server.devices)
        self.records = Records(server.records)
        self.keys = Keys(server.keys)
        self.audit = Audit(server.audit)
        self.signing = Signing(server.signing)
        self.webhooks = Webhooks(server.webhooks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = blocking(AsyncServer.close)
    checks = blocking(AsyncServer.checks)
    job = blocking_as(JobHandle, AsyncServer.job)
    tune = blocking_as(JobHandle, AsyncServer.tune)
    compile = blocking_as(JobHandle, AsyncServer.compile)


class AsyncClient(_Connected, AsyncServer):
    """An asynchronous client of a tunefarm server, with the arguments and methods of `tunefarm.Client`.

    ::

        async with tunefarm.AsyncClient() as client:
            job = await client.tune("model.onnx", minutes=10)
            await job.wait()
            print((await job.download("out")).artifact)

    Progress callbacks are plain functions, called in the event loop: they must return soon.

    Concurrency: any number of tasks of one event loop (asyncio) at once.
    Failure: methods raise `tunefarm.client.ClientError` for all errors of the server and the network, after retries
        with backoff of reads and repeatable requests.
    """

    _make_link = AsyncLink

    def _open(self, transport: Transport) -> None:
        AsyncServer.__init__(self, transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
