"""The two links to a server, one blocking and one asynchronous. The rest of the client is the same for both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol, TypeVar

import httpx

from tunefarm.client.http.blocking import each

T = TypeVar("T")

CHUNK_BYTES = 1 << 20


class Link(Protocol):
    """Moves bytes and lets time pass. Its coroutines either block and never suspend, or suspend and never block."""

    def request(self, method: str, path: str, **parts: Any) -> httpx.Request:
        """Return a request; its parts are those of `httpx.Client.build_request`."""
        ...

    async def open(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the answer's beginning; `chunks` reads on, `end` lets go of it."""
        ...

    def body(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes] | Iterator[bytes]:
        """Return chunks as `request` takes them for its content."""
        ...

    def chunks(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the bytes of an answer."""
        ...

    async def end(self, answer: httpx.Response) -> None:
        """Let go of an answer, read or not."""
        ...

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Do what blocks, like reading a file."""
        ...

    async def sleep(self, sec: float) -> None:
        """Let time pass."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class BlockingLink:
    """Blocks. One thread at a time may use it.

    Args:
        options: Of `httpx.Client`.
    """

    def __init__(self, **options: Any) -> None:
        self._http = httpx.Client(**options)

    def request(self, method: str, path: str, **parts: Any) -> httpx.Request:
        return self._http.build_request(method, path, **parts)

    async def open(self, request: httpx.Request) -> httpx.Response:
        return self._http.send(request, stream=True)

    def body(self, chunks: AsyncIterator[bytes]) -> Iterator[bytes]:
        return each(chunks)

    async def chunks(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        for chunk in answer.iter_bytes(CHUNK_BYTES):
            yield chunk

    async def end(self, answer: httpx.Response) -> None:
        answer.close()

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        return work(*args)

    async def sleep(self, sec: float) -> None:
        time.sleep(sec)

    async def close(self) -> None:
        self._http.close()


class AsyncLink:
    """Suspends, for an event loop of asyncio. Any number of its tasks may use it at once.

    Args:
        options: Of `httpx.AsyncClient`.
    """

    def __init__(self, **options: Any) -> None:
        self._http = httpx.AsyncClient(**options)

    def request(self, method: str, path: str, **parts: Any) -> httpx.Request:
        return self._http.build_request(method, path, **parts)

    async def open(self, request: httpx.Request) -> httpx.Response:
        return await self._http.send(request, stream=True)

    def body(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        return chunks

    def chunks(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        return answer.aiter_bytes(CHUNK_BYTES)

    async def end(self, answer: httpx.Response) -> None:
        await answer.aclose()

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.to_thread(work, *args)

    async def sleep(self, sec: float) -> None:
        await asyncio.sleep(sec)

    async def close(self) -> None:
        await self._http.aclose()
