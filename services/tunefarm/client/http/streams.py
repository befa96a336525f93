"""Read files in chunks for uploads, and write downloads to a folder."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from email.message import Message
from hashlib import sha256
from typing import IO

import httpx

from tunefarm.client.errors import ProtocolError
from tunefarm.client.http.links import CHUNK_BYTES, Link

ByteProgress = Callable[[int, int], None]
"""Called with the bytes moved so far and the total (0 if unknown)."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SHA256_TAG = re.compile(r'"([0-9a-f]{64})"')


async def read_chunks(
    link: Link,
    source: IO[bytes],
    total: int,
    on_progress: ByteProgress | None,
    *,
    start: int = 0,
    end: int | None = None,
) -> AsyncIterator[bytes]:
    """Yield a file, or a part of it, in chunks.

    Args:
        link: Reads the file without blocking an event loop.
        source: The open file.
        total: Its size in bytes, for `on_progress`.
        on_progress: Called after each chunk with the position in the file and `total`.
        start: First byte of the part.
        end: End of the part, exclusive; None for the file's end.
    """
    sent = start
    await link.run(source.seek, start)
    while chunk := await link.run(source.read, CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - sent)):
        yield chunk
        sent += len(chunk)
        if on_progress is not None:
            on_progress(sent, max(total, sent))


async def save(link: Link, answer: httpx.Response, part: IO[bytes], on_progress: ByteProgress | None) -> None:
    """Write the body of a response into a file, from the file's beginning.

    Args:
        link: Reads the body.
        answer: The response.
        part: The file, open for writing.
        on_progress: Called after each chunk with the bytes received and the total (0 if unknown).

    Raises:
        ProtocolError: ``damaged-download`` if the body does not match the SHA-256 in the response's ETag.
    """
    part.seek(0)
    part.truncate()
    total, received, digest = int(answer.headers.get("Content-Length") or 0), 0, sha256()
    async for chunk in link.chunks(answer):
        await link.run(part.write, chunk)
        digest.update(chunk)
        received += len(chunk)
        if on_progress is not None:
            on_progress(received, total)
    if sha256_tag(answer.headers) not in (None, digest.hexdigest()):
        raise ProtocolError("the received file does not match the server's SHA-256", code="damaged-download")


def sha256_tag(headers: httpx.Headers) -> str | None:
    """Return the SHA-256 that a response's ETag is; None if it has another one, or none."""
    promised = _SHA256_TAG.fullmatch(headers.get("ETag", ""))
    return None if promised is None else promised[1]


def file_name(content_disposition: str) -> str | None:
    """Return the file name in a header, made safe: no folders, no odd characters, not hidden."""
    message = Message()
    message["Content-Disposition"] = content_disposition or "attachment"
    name = message.get_filename()
    if not name:
        return None
    return _UNSAFE.sub("_", re.split(r"[/\\]", name)[-1])[:200].lstrip(".-") or None
