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
    """Sends requests and waits. Its coroutines either block and never suspend, or suspend and never block."""

    def request(self, method: str, path: str, **parts: Any) -> httpx.Request:
        """Return a request that is not yet sent.

        Args:
            method: HTTP method.
            path: Path relative to the link's base URL.
            **parts: Query, headers, body, as `httpx.Client.build_request` takes them.
        """
        ...

    async def open(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the response before its body is read. `chunks` reads the body, `end` closes the response."""
        ...

    def body(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes] | Iterator[bytes]:
        """Return chunks in the form that `request` takes as its content."""
        ...

    def chunks(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the body of a response in chunks."""
        ...

    async def end(self, answer: httpx.Response) -> None:
        """Close a response, whether its body was read or not."""
        ...

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Call a blocking function, such as one that reads a file, and return its result.

        Args:
            work: The function.
            *args: Its arguments.
        """
        ...

    async def sleep(self, sec: float) -> None:
        """Wait for some seconds."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class BlockingLink:
    """A link that blocks. One thread at a time may use it.

    Args:
        options: Arguments of `httpx.Client`.
    """

    def __init__(self, **options: Any) -> None:
        self._http = httpx.Client(**options)

    def request(self, method: str, path: str, **parts: Any) -> httpx.Request:
        """Return a request that is not yet sent.

        Args:
            method: HTTP method.
            path: Path relative to the base URL.
            **parts: Query, headers, body, as `httpx.Client.build_request` takes them.
        """
        return self._http.build_request(method, path, **parts)

    async def open(self, request: httpx.Request) -> httpx.Response:
        """Send a request, wait for the response's headers, and return the response."""
        return self._http.send(request, stream=True)

    def body(self, chunks: AsyncIterator[bytes]) -> Iterator[bytes]:
        """Return the chunks as a plain iterator, as httpx's blocking client needs it."""
        return each(chunks)

    async def chunks(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the body of a response in chunks of `CHUNK_BYTES`."""
        for chunk in answer.iter_bytes(CHUNK_BYTES):
            yield chunk

    async def end(self, answer: httpx.Response) -> None:
        """Close a response, whether its body was read or not."""
        answer.close()

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Call a function in this thread and return its result.

        Args:
            work: The function.
            *args: Its arguments.
        """
        return work(*args)

    async def sleep(self, sec: float) -> None:
        """Block this thread for some seconds."""
        time.sleep(sec)

    async def close(self) -> None:
        """Close all connections."""
        self._http.close()


class AsyncLink:
    """A link that suspends, for asyncio. Any number of tasks of one event loop may use it at once.

    Args:
        options: Arguments of `httpx.AsyncClient`.
    """

    def __init__(self, **options: Any) -> None:
        self._http = httpx.AsyncClient(**options)

    def request(self, method: str, path: str, **parts: Any) -> httpx.Request:
        """Return a request that is not yet sent.

        Args:
            method: HTTP method.
            path: Path relative to the base URL.
            **parts: Query, headers, body, as `httpx.AsyncClient.build_request` takes them.
        """
        return self._http.build_request(method, path, **parts)

    async def open(self, request: httpx.Request) -> httpx.Response:
        """Send a request, wait for the response's headers, and return the response."""
        return await self._http.send(request, stream=True)

    def body(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return the chunks unchanged: httpx's asynchronous client takes an asynchronous iterator."""
        return chunks

    def chunks(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the body of a response in chunks of `CHUNK_BYTES`."""
        return answer.aiter_bytes(CHUNK_BYTES)

    async def end(self, answer: httpx.Response) -> None:
        """Close a response, whether its body was read or not."""
        await answer.aclose()

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Call a blocking function in a thread and return its result.

        Args:
            work: The function.
            *args: Its arguments.
        """
        return await asyncio.to_thread(work, *args)

    async def sleep(self, sec: float) -> None:
        """Suspend this task for some seconds."""
        await asyncio.sleep(sec)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()
