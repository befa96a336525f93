"""The client: one object for one server."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tunefarm.client.farm import Devices, Records
from tunefarm.client.handle import JobHandle
from tunefarm.client.http.blocking import Blocking, blocking, blocking_as
from tunefarm.client.http.links import BlockingLink
from tunefarm.client.http.transport import Transport
from tunefarm.client.jobs import Jobs
from tunefarm.client.keys import Keys
from tunefarm.client.making import MadeClient
from tunefarm.client.models import Models
from tunefarm.client.server import AsyncServer
from tunefarm.client.webhooks import Webhooks


class Client(MadeClient, Blocking[AsyncServer]):
    """A tunefarm server, from Python.

    ::

        client = tunefarm.Client()  # the farm of `tunefarm serve`; or Client("http://10.0.0.5:8000", api_key)
        job = client.tune("model.onnx", target="host", minutes=10)
        job.wait()
        print(job.download("out").artifact)

    It can be used in a ``with`` block, or be left to itself.

    Concurrency: one thread at a time; a client per thread is cheap.
    Failure: methods raise `tunefarm.client.ClientError` and nothing else for what the server or the network did;
        reads and repeatable requests were tried again with backoff before that.
    """

    _make_link = BlockingLink

    def _open(self, transport: Transport) -> None:
        server = AsyncServer(transport)
        Blocking.__init__(self, server)
        self.models = Models(server.models)
        self.jobs = Jobs(server.jobs)
        self.devices = Devices(server.devices)
        self.records = Records(server.records)
        self.keys = Keys(server.keys)
        self.webhooks = Webhooks(server.webhooks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    close = blocking(AsyncServer.close)
    checks = blocking(AsyncServer.checks)
    job = blocking_as(JobHandle, AsyncServer.job)
    tune = blocking_as(JobHandle, AsyncServer.tune)
