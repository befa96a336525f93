"""Receive a file: streamed to the store in constant memory, and removed if anything fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from tempfile import SpooledTemporaryFile

from fastapi import Request
from fastapi.concurrency import contextmanager_in_threadpool
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from tunefarm_api.auth import key_of
from tunefarm_api.concurrency import RequestsUnderWay
from tunefarm_app.access.quotas import reserved_bytes
from tunefarm_app.models.samples import SubmittedSamples, require_ready_model, submit_samples
from tunefarm_app.records.importing import RecordImport, import_records, read_records
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import StoredBlob, too_large
from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError

STALLED_SEC = 20.0
"""A request that sends nothing for this time is ended: it would hold bytes, or an upload that another one may write."""

_PIECE_BYTES = 1 << 20
_PIECE_SEC = 1.0
_RECORD_TYPES = ("application/jsonl", "application/x-ndjson", "application/octet-stream")


class StalledError(TunefarmError):
    """The client stopped sending."""

    default_code = "upload-stalled"


async def receive_samples(request: Request, services: Services, model_id: str, name: str) -> SubmittedSamples:
    """Store the request's body as samples of a model, and plan their check.

    Raises:
        NotFoundError, ConflictError, InvalidInputError: As `submit_samples`; those of the model before the body is read.
        InvalidInputError, StalledError, TransientError, ClientDisconnect: As `received_blob`.
    """
    with closing_unless_read(request):
        await run_in_threadpool(require_ready_model, services, model_id)
        async with received_blob(request, services, limit_bytes=services.settings.max_samples_bytes) as blob:
            return await run_in_threadpool(submit_samples, services, model_id, name=name, blob=blob)


@asynccontextmanager
async def received_blob(
    request: Request, services: Services, *, limit_bytes: int | None = None
) -> AsyncIterator[StoredBlob]:
    """Store the request's body as a blob of at most `limit_bytes`; by default, the limit of models.

    What the key may still store is reserved from the beginning to the end of the block, which registers the blob.

    Raises:
        InvalidInputError: ``too-large`` at once if the length is announced, else as soon as the limit is passed;
            ``unsupported-media-type`` for a form.
        QuotaError: ``quota-bytes``, as soon.
        StalledError: If no byte comes for `STALLED_SEC`.
        TransientError: If the store cannot write it.
        ClientDisconnect: If the client goes away.
    """
    with closing_unless_read(request):
        if media_type(request).startswith("multipart/"):
            raise InvalidInputError(
                "send the file's bytes as the body (application/octet-stream), not as a form",
                code="unsupported-media-type",
            )
        limit_bytes = services.settings.max_upload_bytes if limit_bytes is None else limit_bytes
        announced = announced_bytes(request, limit_bytes)
        async with contextmanager_in_threadpool(reserved_bytes(services, announced, limit_bytes)) as reserved:
            with await run_in_threadpool(services.blobs.writer, limit_bytes=reserved.allowed) as writer:
                async for piece in body_pieces(request, stalled_sec=STALLED_SEC):
                    await run_in_threadpool(writer.write, piece)
                    await run_in_threadpool(reserved.renew)
                blob = await run_in_threadpool(writer.commit)
            request.scope["tunefarm.close"] = False
            yield blob


async def receive_records(request: Request, services: Services, *, keep_unknown: bool) -> RecordImport:
    """Read the request's body as JSON lines, and import the records if all of them can be read.

    Raises:
        InvalidInputError: ``too-large``, ``unsupported-media-type``.
        InvalidRecordError: As `read_records`.
        StalledError: If no byte comes for `STALLED_SEC`.
        ClientDisconnect: If the client goes away.
        TransientError: ``too-many-at-once``.
    """
    limit_bytes = services.settings.max_records_bytes
    under_way: RequestsUnderWay = request.app.state.under_way
    with (
        closing_unless_read(request),
        under_way.counted_import(key_of(request).owner),
        SpooledTemporaryFile(max_size=_PIECE_BYTES) as body,
    ):
        if media_type(request) not in _RECORD_TYPES:
            raise InvalidInputError(
                "send records as JSON lines (application/jsonl), one a line", code="unsupported-media-type"
            )
        announced_bytes(request, limit_bytes)
        async for piece in body_pieces(request, stalled_sec=STALLED_SEC):
            if body.tell() + len(piece) > limit_bytes:
                raise too_large(limit_bytes)
            await run_in_threadpool(body.write, piece)
        request.scope["tunefarm.close"] = False

        def imported() -> RecordImport:
            body.seek(0)
            return import_records(services, list(read_records(body)), keep_unknown=keep_unknown)

        async with under_way.importing:
            return await run_in_threadpool(imported)


@contextmanager
def closing_unless_read(request: Request) -> Iterator[None]:
    """Close the connection after the answer if the block raises, because part of the body is unread."""
    request.scope["tunefarm.close"] = True
    yield
    request.scope["tunefarm.close"] = False


def media_type(request: Request) -> str:
    """Return the body's media type, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def announced_bytes(request: Request, limit_bytes: int) -> int | None:
    """Return the length that the client announces for the body; None if it announces none.

    Raises:
        InvalidInputError: ``too-large``.
    """
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        return None
    if int(length) > limit_bytes:
        raise too_large(limit_bytes)
    return int(length)


async def body_pieces(request: Request, *, stalled_sec: float) -> AsyncIterator[bytes]:
    """Yield the body in pieces of about a mebibyte, or of what arrives in a second.

    Hashing and writing a piece is done in a thread, so that other requests continue; smaller pieces are not worth a thread.
    What came before an error is yielded first.

    Args:
        request: The request.
        stalled_sec: Longest pause of the client.

    Raises:
        StalledError: If the client sends nothing for `stalled_sec`.
        ClientDisconnect: If the client goes away.
    """
    pieces: list[bytes] = []
    pending, since = 0, time.monotonic()
    stream = aiter(request.stream())
    try:
        while True:
            async with asyncio.timeout(stalled_sec):
                chunk = await anext(stream, None)
            if chunk is None:
                break
            pieces.append(chunk)
            pending += len(chunk)
            if pending >= _PIECE_BYTES or time.monotonic() - since >= _PIECE_SEC:
                yield b"".join(pieces)
                pieces, pending, since = [], 0, time.monotonic()
    except (ClientDisconnect, TimeoutError) as error:
        yield b"".join(pieces)
        if isinstance(error, ClientDisconnect):
            raise
        raise StalledError(
            f"no bytes arrived for {stalled_sec:g} s: send the file again, or continue from the upload's offset"
        ) from None
    yield b"".join(pieces)
