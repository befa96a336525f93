"""HTTP to the farm: authentication, time-outs, retries, problem documents, streaming both ways."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any
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
from tunefarm.client.retry import RETRIED_STATUSES, RetryPolicy

ByteProgress = Callable[[int, int], None]
"""Called with the bytes moved so far and the bytes in all (0 where that is not known)."""

Query = Mapping[str, str | int | float | list[str] | None]

_CHUNK_BYTES = 1 << 20
_MAX_PROBLEM_BYTES = 1 << 20
_SHA256_TAG = re.compile(r'"([0-9a-f]{64})"')
_PRINTABLE = re.compile(r"[!-~]+")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Transport:
    """Sends requests below ``<url>/v1``. One thread at a time may use it.

    Args:
        url: Where the API answers (``http://127.0.0.1:8000``).
        api_key: Bearer token; None sends none.
        timeout_sec: Longest silence of the server, per read.
        retry: When to try again.
        sleep: Waits between attempts; a test passes its own.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None,
        *,
        timeout_sec: float,
        retry: RetryPolicy,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            base = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InvalidRequestError(f"{url!r} is not a URL: {error}", code="bad-url") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise InvalidRequestError(
                f"{url!r} is not the URL of a server: it must begin with http:// or https://", code="bad-url"
            )
        self.url = str(base).rstrip("/")
        self._retry = retry
        self._sleep = sleep
        headers = {"User-Agent": "tunefarm-client", "Accept": "application/json"}
        if api_key:
            if not _PRINTABLE.fullmatch(api_key):
                raise AuthenticationError("the API key holds characters that no key has", code="bad-api-key")
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(
            base_url=f"{self.url}/v1/",
            headers=headers,
            timeout=httpx.Timeout(timeout_sec, connect=min(10.0, timeout_sec)),
            # A proxy from the environment has no business between two processes of one machine.
            trust_env=base.host not in _LOOPBACK,
        )

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, query: Query | None = None) -> Any:
        return self._json(self._send(lambda: self._request("GET", path, query), repeatable=True))

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        repeatable: bool = False,
    ) -> Any:
        """Send JSON.

        Args:
            path: Below ``/v1``.
            body: What to send; None for an empty body.
            key: Idempotency key; with one, the request may be sent twice.
            repeatable: Sending it twice does no harm anyway.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self._send(
            lambda: self._request("POST", path, None, json=body, headers=headers),
            repeatable=repeatable or key is not None,
        )
        return self._json(answer)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Change what the JSON names; sending it twice does no harm."""
        return self._json(self._send(lambda: self._request("PATCH", path, None, json=body), repeatable=True))

    def delete(self, path: str) -> None:
        self._send(lambda: self._request("DELETE", path, None), repeatable=False)

    def upload(self, path: str, query: Query, file: Path, on_progress: ByteProgress | None) -> Any:
        """Stream a file as the body of a POST. Sending it twice is safe: the server addresses it by content."""
        total = file.stat().st_size

        def request() -> httpx.Request:
            if on_progress is not None:
                on_progress(0, total)
            return self._request(
                "POST",
                path,
                query,
                content=_chunks(file, total, on_progress),
                headers={"Content-Type": "application/octet-stream", "Content-Length": str(total)},
            )

        return self._json(self._send(request, repeatable=True))

    def download(self, path: str, target: Path, on_progress: ByteProgress | None) -> httpx.Headers:
        """Stream an answer into `target`: whole, or not at all.

        It is written beside `target` and renamed at the end, so that nobody ever sees a part of it.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as part:
            try:
                answer = self._send(
                    # As it is: a compressed answer would have neither the length nor the checksum of the file.
                    lambda: self._request(
                        "GET", path, None, headers={"Accept": "*/*", "Accept-Encoding": "identity"}
                    ),
                    repeatable=True,
                    read=lambda response: _save(response, part, on_progress),
                )
                part.flush()
                os.fsync(part.fileno())
                Path(part.name).chmod(0o644)
                Path(part.name).replace(target)
            except BaseException:
                with suppress(OSError):
                    Path(part.name).unlink()
                raise
        return answer.headers

    def _request(self, method: str, path: str, query: Query | None, **rest: Any) -> httpx.Request:
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            return self._http.build_request(method, path, params=params, **rest)
        except (
            ValueError,
            TypeError,
            httpx.InvalidURL,
        ) as error:  # half a surrogate pair, an infinite number, NUL
            raise InvalidRequestError(f"this cannot be sent: {error}", code="bad-request") from error

    def _send(
        self,
        build: Callable[[], httpx.Request],
        *,
        repeatable: bool,
        read: Callable[[httpx.Response], object] = httpx.Response.read,
    ) -> httpx.Response:
        attempt = 0
        while True:
            attempt += 1
            retry_after = None
            try:
                response = self._http.send(build(), stream=True)
                try:
                    if response.is_success:
                        read(response)
                        return response
                    error = _problem(response)
                    retry_after = response.headers.get("Retry-After")
                finally:
                    response.close()
                again = response.status_code in RETRIED_STATUSES and (
                    repeatable or response.status_code == httpx.codes.TOO_MANY_REQUESTS
                )
            except (httpx.ConnectError, httpx.ConnectTimeout) as cause:
                error = UnavailableError(f"cannot reach {self.url}: {_why(cause)}", code="unreachable")
                again = True
            except httpx.TransportError as cause:
                error = UnavailableError(
                    f"the connection to {self.url} broke off: {_why(cause)}", code="connection-lost"
                )
                again = repeatable
            if not again or attempt >= self._retry.attempts:
                raise error
            self._sleep(self._retry.wait_sec(attempt, retry_after, random.random))

    @staticmethod
    def _json(response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError as error:
            raise ProtocolError(
                "the server's answer is not JSON; is this the URL of a tunefarm server?",
                code="bad-answer",
                status=response.status_code,
            ) from error


def segment(text: str) -> str:
    """Return an id as a part of a path: whatever it holds, it does not lead elsewhere."""
    return quote(text, safe="", errors="replace").replace(".", "%2E")


def _chunks(file: Path, total: int, on_progress: ByteProgress | None) -> Iterator[bytes]:
    sent = 0
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            yield chunk
            sent += len(chunk)
            if on_progress is not None:
                on_progress(sent, max(total, sent))


def _save(response: httpx.Response, part: IO[bytes], on_progress: ByteProgress | None) -> None:
    part.seek(0)
    part.truncate()
    total, received, digest = int(response.headers.get("Content-Length") or 0), 0, sha256()
    for chunk in response.iter_bytes(_CHUNK_BYTES):
        part.write(chunk)
        digest.update(chunk)
        received += len(chunk)
        if on_progress is not None:
            on_progress(received, total)
    promised = _SHA256_TAG.fullmatch(response.headers.get("ETag", ""))
    if promised is not None and promised[1] != digest.hexdigest():
        raise ProtocolError(
            "the file that arrived is not the one that the server sent (SHA-256)", code="damaged-download"
        )


def _problem(response: httpx.Response) -> ClientError:
    if response.is_redirect:
        return ProtocolError(
            f"the server redirects to {response.headers.get('Location')!r}: give that URL instead",
            code="redirected",
            status=response.status_code,
        )
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > _MAX_PROBLEM_BYTES:
            break
    return error_from_answer(response.status_code, response.headers.get("Content-Type", ""), body)


def _why(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__
