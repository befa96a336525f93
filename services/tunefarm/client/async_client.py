"""The client for programs that await: one object for one server."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tunefarm.client.http.links import AsyncLink
from tunefarm.client.http.transport import Transport
from tunefarm.client.making import MadeClient
from tunefarm.client.server import AsyncServer


class AsyncClient(MadeClient, AsyncServer):
    """A tunefarm server, from Python that awaits. It is made like `tunefarm.Client`, and has what that has.

    ::

        async with tunefarm.AsyncClient() as client:
            job = await client.tune("model.onnx", minutes=10)
            await job.wait()
            print((await job.download("out")).artifact)

    Progress is told to plain functions, in the event loop: they shall return soon.

    Concurrency: any number of tasks of one event loop (asyncio) at once.
    Failure: methods raise `tunefarm.client.ClientError` and nothing else for what the server or the network did;
        reads and repeatable requests were tried again with backoff before that.
    """

    _make_link = AsyncLink

    def _open(self, transport: Transport) -> None:
        AsyncServer.__init__(self, transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()
