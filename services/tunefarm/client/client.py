"""The client: one object for one server."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tunefarm.client.async_client import AsyncClient
from tunefarm.client.blocking import Blocking, blocking, blocking_as
from tunefarm.client.farm import Devices, Records
from tunefarm.client.handle import JobHandle
from tunefarm.client.jobs import Jobs
from tunefarm.client.keys import Keys
from tunefarm.client.links import BlockingLink
from tunefarm.client.models import Models
from tunefarm.client.retry import RetryPolicy
from tunefarm.client.webhooks import Webhooks


class _Core(AsyncClient):
    _make_link = BlockingLink


class Client(Blocking[AsyncClient]):
    """A tunefarm server, from Python.

    ::

        with tunefarm.Client("http://127.0.0.1:8000", api_key) as client:
            job = client.tune("model.onnx", seconds=600)
            job.wait(lambda job: print(job.state, job.trials, job.best_latency_sec))
            print(job.download("out").artifact)

    Concurrency: one thread at a time; a client per thread is cheap.
    Failure: methods raise `tunefarm.client.ClientError` and nothing else for what the server or the network did;
        reads and repeatable requests were tried again with backoff before that.

    Args:
        url: Where the API answers; ``TUNEFARM_URL`` where it is left out.
        api_key: ``tfk_…``; ``TUNEFARM_API_KEY`` where it is left out.
        timeout_sec: Longest silence of the server in one request.
        retry: When a failed request is sent again.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_sec: float = 60.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        core = _Core(url, api_key, timeout_sec=timeout_sec, retry=retry)
        super().__init__(core)
        self.models = Models(core.models)
        self.jobs = Jobs(core.jobs)
        self.devices = Devices(core.devices)
        self.records = Records(core.records)
        self.keys = Keys(core.keys)
        self.webhooks = Webhooks(core.webhooks)

    @property
    def url(self) -> str:
        return self._core.url

    def __repr__(self) -> str:
        return f"<tunefarm.Client {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    close = blocking(AsyncClient.close)
    checks = blocking(AsyncClient.checks)
    job = blocking_as(JobHandle, AsyncClient.job)
    tune = blocking_as(JobHandle, AsyncClient.tune)
