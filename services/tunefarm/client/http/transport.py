"""Send requests to the farm: retries, problem documents, uploads and downloads."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, TypeVar
from urllib.parse import quote

import httpx

from tunefarm.client.errors import (
    AuthenticationError,
    ClientError,
    InvalidRequestError,
    ProtocolError,
    UnavailableError,
    error_from_answer,
)
from tunefarm.client.http.connection import base_url, link_options
from tunefarm.client.http.links import Link
from tunefarm.client.http.retry import RETRIED_STATUSES, RetryPolicy
from tunefarm.client.http.streams import ByteProgress, read_chunks, save

T = TypeVar("T")

Query = Mapping[str, str | int | float | list[str] | None]

_MAX_PROBLEM_BYTES = 1 << 20


class Transport:
    """Sends requests below ``<url>/v1``, over either link.

    Args:
        make_link: Connects; a class of `tunefarm.client.http.links`.
        url: URL of the server (``http://127.0.0.1:8000``).
        api_key: Bearer token; None sends none.
        timeout_sec: Longest silence of the server, per read.
        retry: When to try again.
    """

    def __init__(
        self,
        make_link: Callable[..., Link],
        url: str,
        api_key: str | None,
        *,
        timeout_sec: float,
        retry: RetryPolicy,
    ) -> None:
        self.url = base_url(url)
        self.link = make_link(**link_options(self.url, api_key, timeout_sec))
        self.retry = retry
        self._has_key = bool(api_key)

    async def get(self, path: str, query: Query | None = None) -> Any:
        """Return the JSON at a path.

        Args:
            path: Below ``/v1``.
            query: Parameters; None values are not sent.

        Raises:
            ClientError: The error that the server answered with, or why no answer came.
        """
        return await self._send(lambda: self._request("GET", path, query), self._json, repeatable=True)

    async def text(self, path: str, query: Query | None = None) -> str:
        """Return the plain text at a path.

        Args:
            path: Below ``/v1``.
            query: Parameters; None values are not sent.

        Raises:
            ClientError: The error that the server answered with, or why no answer came.
        """
        body = await self._send(lambda: self._request("GET", path, query), self._body, repeatable=True)
        return body.decode(errors="replace")

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Query | None = None,
        repeatable: bool = False,
    ) -> Any:
        """Send JSON and return the response's JSON.

        Args:
            path: Below ``/v1``.
            body: JSON object to send; None for an empty body.
            key: Idempotency key; a request that has one may be sent twice.
            headers: Further headers.
            query: The query; None values are left out.
            repeatable: Whether the request may be sent twice even without a key.

        Raises:
            ClientError: The error that the server answered with, or why no answer came.
        """
        sent = {**(headers or {}), **({} if key is None else {"Idempotency-Key": key})}
        return await self._send(
            lambda: self._request("POST", path, query, json=body, headers=sent),
            self._json,
            repeatable=repeatable or key is not None,
        )

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Change the fields that the JSON names. The request may be sent twice.

        Args:
            path: Below ``/v1``.
            body: JSON object with the new values.

        Raises:
            ClientError: The error that the server answered with, or why no answer came.
        """
        return await self._send(
            lambda: self._request("PATCH", path, None, json=body), self._json, repeatable=True
        )

    async def delete(self, path: str) -> None:
        """Delete the resource at a path below ``/v1``. The request is sent once."""
        await self._send(lambda: self._request("DELETE", path, None), self._body, repeatable=False)

    async def upload(self, path: str, query: Query, file: Path, on_progress: ByteProgress | None) -> Any:
        """Stream a file as the body of a POST. It may be sent twice: the server addresses files by their content.

        Args:
            path: Below ``/v1``.
            query: Parameters; None values are not sent.
            file: The file to send.
            on_progress: Called with the bytes sent and the file's size; from 0 again if the request is repeated.

        Raises:
            ClientError: The error that the server answered with, or why no answer came.
        """
        with await self.link.run(lambda: file.open("rb")) as source:
            total = os.fstat(source.fileno()).st_size

            def request() -> httpx.Request:
                if on_progress is not None:
                    on_progress(0, total)
                return self._request(
                    "POST",
                    path,
                    query,
                    content=self.link.body(read_chunks(self.link, source, total, on_progress)),
                    headers={"Content-Type": "application/octet-stream", "Content-Length": str(total)},
                )

            return await self._send(request, self._json, repeatable=True)

    async def send_part(
        self, path: str, source: IO[bytes], start: int, end: int, total: int, on_progress: ByteProgress | None
    ) -> httpx.Headers:
        """Stream a part of a file as the body of a tus PATCH. It is sent once: only the server knows how much of it arrived.

        Args:
            path: The upload, below ``/v1``.
            source: The open file.
            start: First byte of the part.
            end: End of the part, exclusive.
            total: Size of the file in bytes, for `on_progress`.
            on_progress: Called with the position in the file and `total`.

        Returns:
            The response's headers.

        Raises:
            ClientError: The error that the server answered with, or why no answer came.
        """

        async def read(answer: httpx.Response) -> httpx.Headers:
            await self._body(answer)
            return answer.headers

        def request() -> httpx.Request:
            if on_progress is not None:
                on_progress(start, total)
            chunks = read_chunks(self.link, source, total, on_progress, start=start, end=end)
            headers = {
                "Content-Type": "application/offset+octet-stream",
                "Content-Length": str(end - start),
                "Tus-Resumable": "1.0.0",
                "Upload-Offset": str(start),
            }
            return self._request("PATCH", path, None, content=self.link.body(chunks), headers=headers)

        return await self._send(request, read, repeatable=False)

    async def download(
        self, path: str, target: Path, on_progress: ByteProgress | None, query: Query | None = None
    ) -> httpx.Headers:
        """Stream a response into a file. The file appears only when it is complete.

        It is written beside `target` under a temporary name, and renamed at the end.

        Args:
            path: Below ``/v1``.
            target: The file to write; its folders are created, an existing file is replaced.
            on_progress: Called with the bytes received and the total (0 if unknown).
            query: The query's parameters.

        Returns:
            The response's headers.

        Raises:
            ClientError: The error that the server answered with, or why no answer came.
            ProtocolError: ``damaged-download`` if the file does not match the server's SHA-256.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as part:

            async def read(answer: httpx.Response) -> httpx.Headers:
                await save(self.link, answer, part, on_progress)
                return answer.headers

            def request() -> httpx.Request:
                # Uncompressed: a compressed answer would have neither the length nor the checksum of the file.
                headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
                return self._request("GET", path, query, headers=headers)

            try:
                headers = await self._send(request, read, repeatable=True)
                part.flush()
                await self.link.run(os.fsync, part.fileno())
                Path(part.name).chmod(0o644)
                Path(part.name).replace(target)
            except BaseException:
                with suppress(OSError):
                    Path(part.name).unlink()
                raise
        return headers

    def _request(self, method: str, path: str, query: Query | None, **rest: Any) -> httpx.Request:
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            return self.link.request(method, path, params=params, **rest)
        except (
            ValueError,
            TypeError,
            httpx.InvalidURL,
        ) as error:  # half a surrogate pair, an infinite number, NUL
            raise InvalidRequestError(f"the request cannot be sent: {error}", code="bad-request") from error

    async def _send(
        self,
        build: Callable[[], httpx.Request],
        read: Callable[[httpx.Response], Awaitable[T]],
        *,
        repeatable: bool,
    ) -> T:
        """Send requests from `build` until `read` has read a good answer or a further try makes no sense."""
        attempt = 0
        while True:
            attempt += 1
            retry_after = None
            try:
                answer = await self.link.open(build())
                try:
                    if answer.is_success:
                        return await read(answer)
                    error = await self._problem(answer)
                    retry_after = answer.headers.get("Retry-After")
                finally:
                    await self.link.end(answer)
                again = answer.status_code in RETRIED_STATUSES and (
                    repeatable or answer.status_code == httpx.codes.TOO_MANY_REQUESTS
                )
                again &= not error.code.startswith("quota-")  # waiting for a job to end is the user's choice
            except (httpx.ConnectError, httpx.ConnectTimeout) as cause:
                error = UnavailableError(f"cannot reach {self.url}: {_why(cause)}", code="unreachable")
                again = True
            except httpx.TransportError as cause:
                error = UnavailableError(
                    f"the connection to {self.url} broke off: {_why(cause)}", code="connection-lost"
                )
                again = repeatable
            except httpx.DecodingError as cause:
                raise ProtocolError(
                    f"the server's response is garbled: {cause}", code="bad-answer"
                ) from cause
            if not again or attempt >= self.retry.attempts:
                raise error
            await self.link.sleep(self.retry.wait_sec(attempt, retry_after, random.random))

    async def _body(self, answer: httpx.Response) -> bytes:
        return b"".join([chunk async for chunk in self.link.chunks(answer)])

    async def _json(self, answer: httpx.Response) -> Any:
        try:
            return json.loads(await self._body(answer))
        except ValueError as error:
            raise ProtocolError(
                "the server's response is not JSON; is this the URL of a tunefarm server?",
                code="bad-answer",
                status=answer.status_code,
            ) from error

    async def _problem(self, answer: httpx.Response) -> ClientError:
        if answer.is_redirect:
            return ProtocolError(
                f"the server redirects to {answer.headers.get('Location')!r}: use that URL instead",
                code="redirected",
                status=answer.status_code,
            )
        body = b""
        async for chunk in self.link.chunks(answer):
            body += chunk
            if len(body) > _MAX_PROBLEM_BYTES:
                break
        error = error_from_answer(answer.status_code, answer.headers.get("Content-Type", ""), body)
        if isinstance(error, AuthenticationError) and not self._has_key:
            error.add_note("The client has no API key: pass api_key, or set TUNEFARM_API_KEY.")
        return error


class Resource:
    """Base of the classes of requests, one per kind of resource."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


def segment(text: str) -> str:
    """Return an id as a segment of a path, quoted so that it cannot lead to another path."""
    return quote(text, safe="", errors="replace").replace(".", "%2E")


def _why(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__
