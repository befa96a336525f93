"""Receiving a file: streamed to the store in constant memory, and gone without trace if anything goes wrong."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from tunefarm_app.models.submit import check_shapes
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import StoredBlob, too_large
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

_CHUNK_BYTES = 1 << 20


def parse_shapes(texts: Sequence[str]) -> dict[str, list[int]]:
    """Read ``name=1,3,224,224`` texts. A name may hold anything, ``=`` and ``:`` too.

    Raises:
        InvalidInputError: ``bad-shape``.
    """
    shapes: dict[str, list[int]] = {}
    for text in texts:
        name, equals, dimensions = text.rpartition("=")
        parts = [part.strip() for part in dimensions.split(",")] if dimensions.strip() else []
        if not equals or not name or not all(part.isascii() and part.isdigit() for part in parts):
            raise InvalidInputError(
                f"shape {clean(text)!r} is not of the form name=1,3,224,224", code="bad-shape"
            )
        if name in shapes:
            raise InvalidInputError(
                f"input {clean(name)!r} has two shapes", code="bad-shape", input=clean(name)
            )
        shapes[name] = [int(part[:20]) for part in parts]
    check_shapes(shapes)
    return shapes


async def receive_blob(request: Request, services: Services) -> StoredBlob:
    """Store the request's body as a blob.

    Raises:
        InvalidInputError: ``too-large`` at once if the length is announced, else as soon as the limit is passed;
            ``unsupported-media-type`` for a form.
        TransientError: If the store cannot take it.
        ClientDisconnect: If the client goes away.
    """
    limit_bytes = services.settings.max_upload_bytes
    # Whatever ends this early leaves a body unread: the connection must not be used again.
    request.scope["tunefarm.close"] = True
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type.startswith("multipart/"):
        raise InvalidInputError(
            "send the file's bytes as the body (application/octet-stream), not as a form",
            code="unsupported-media-type",
        )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit_bytes:
        raise too_large(limit_bytes)
    writer = await run_in_threadpool(services.blobs.writer, limit_bytes=limit_bytes)
    with writer:
        # Hashing and writing happen in threads, in pieces worth the trip: other requests go on meanwhile.
        pieces: list[bytes] = []
        pending = 0
        async for chunk in request.stream():
            pieces.append(chunk)
            pending += len(chunk)
            if pending >= _CHUNK_BYTES:
                await run_in_threadpool(writer.write, b"".join(pieces))
                pieces, pending = [], 0
        await run_in_threadpool(writer.write, b"".join(pieces))
        blob = await run_in_threadpool(writer.commit)
    request.scope["tunefarm.close"] = False
    return blob
