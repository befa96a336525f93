"""Uploads that can be gone on with: tus 1.0 (https://tus.io/protocols/resumable-upload), between HTTP and the use case.

The API and the dashboard speak it alike; they differ in how who asks is known.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import AsyncIterator, Mapping
from email.utils import formatdate

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from tunefarm_api.auth import key_of
from tunefarm_api.schemas.upload import Upload as UploadSchema
from tunefarm_api.transfer.upload import parse_shapes
from tunefarm_api.web.paths import TUS_VERSION
from tunefarm_app.models.upload_part import UploadPart
from tunefarm_app.models.uploads import begin_upload
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import too_large
from tunefarm_db.values import Upload, UploadState
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean

EXTENSIONS = "creation,expiration,termination"
MEDIA_TYPE = "application/offset+octet-stream"

STALLED_SEC = 20.0
"""A request that sends nothing for so long is ended, and the upload free for another one."""

_PIECE_BYTES = 1 << 20
_PIECE_SEC = 1.0
_MAX_METADATA_BYTES = 8192
_MAX_DIGITS = 18


class StalledError(TunefarmError):
    """The client sends nothing any more."""

    default_code = "upload-stalled"


def answer_headers(upload: Upload) -> dict[str, str]:
    """Return what every answer says of an upload."""
    headers = {"Tus-Resumable": TUS_VERSION, "Upload-Expires": formatdate(upload.expires_at, usegmt=True)}
    if (
        upload.state is not UploadState.FAILED
    ):  # there is nothing to go on with: without an offset no client tries
        headers["Upload-Offset"] = str(upload.offset_bytes)
    return headers


def shown(upload: Upload) -> JSONResponse:
    """Return the answer to GET, and so to HEAD."""
    headers = {**answer_headers(upload), "Upload-Length": str(upload.size_bytes)}
    if upload.metadata:
        headers["Upload-Metadata"] = upload.metadata
    return JSONResponse(UploadSchema.model_validate(upload).model_dump(mode="json"), headers=headers)


def capabilities(services: Services) -> Response:
    """Return the answer to OPTIONS."""
    headers = {
        "Tus-Resumable": TUS_VERSION,
        "Tus-Version": TUS_VERSION,
        "Tus-Extension": EXTENSIONS,
        "Tus-Max-Size": str(services.settings.max_upload_bytes),
    }
    return Response(status_code=204, headers=headers)


async def begin(request: Request, services: Services) -> Upload:
    """Begin the upload that a POST asks for.

    Raises:
        ConflictError: ``tus-version``.
        InvalidInputError: ``bad-length``, ``bad-metadata``; what `begin_upload` and `parse_shapes` raise.
    """
    check_version(request)
    said = request.headers.get("upload-metadata", "")
    metadata = parse_metadata(said)
    size_bytes = _number(request, "upload-length", "bad-length")
    name = metadata.get("filename") or metadata.get("name") or "model"
    shapes = parse_shapes([line for line in metadata.get("shapes", "").splitlines() if line.strip()])
    return await run_in_threadpool(
        begin_upload,
        services,
        api_key_id=key_of(request).id,
        name=name,
        size_bytes=size_bytes,
        shapes=shapes,
        sha256=metadata.get("sha256") or None,
        metadata=said,
    )


async def go_on(request: Request, services: Services, upload_id: str) -> Upload:
    """Take the bytes of a PATCH; return how far the upload is then. What came is kept however this ends.

    Raises:
        ConflictError: ``tus-version``.
        InvalidInputError: ``too-large``, ``unsupported-media-type``, ``bad-offset``; what `UploadPart` raises, as for the
            other errors.
        StalledError: If no byte comes for `STALLED_SEC`.
        ClientDisconnect: If the client goes away.
    """
    # Whatever ends this early leaves a body unread: the connection must not be used again.
    request.scope["tunefarm.close"] = True
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > services.settings.max_upload_bytes:
        raise too_large(services.settings.max_upload_bytes)
    check_version(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != MEDIA_TYPE:
        raise InvalidInputError(
            f"send the file's bytes as {MEDIA_TYPE}, from the offset on", code="unsupported-media-type"
        )
    offset_bytes = _number(request, "upload-offset", "bad-offset")
    part = await run_in_threadpool(
        UploadPart,
        services,
        upload_id,
        api_key_id=key_of(request).id,
        offset_bytes=offset_bytes,
        more_bytes=int(length) if length.isdecimal() else None,
    )
    try:
        async for piece in _pieces(request):
            await run_in_threadpool(part.write, piece)
        upload = await run_in_threadpool(part.end)
    finally:
        await run_in_threadpool(part.close)
    request.scope["tunefarm.close"] = False
    return upload


def check_version(request: Request) -> None:
    """Refuse another version of the protocol; none is fine, for those who speak it by hand.

    Raises:
        ConflictError: ``tus-version``.
    """
    version = request.headers.get("tus-resumable")
    if version not in (None, TUS_VERSION):
        raise ConflictError(
            f"this server speaks tus {TUS_VERSION} only", code="tus-version", versions=[TUS_VERSION]
        )


def parse_metadata(said: str) -> Mapping[str, str]:
    """Read ``Upload-Metadata``: pairs of a key and a text in Base64, separated by commas.

    Raises:
        InvalidInputError: ``bad-metadata``.
    """
    if len(said) > _MAX_METADATA_BYTES:
        raise InvalidInputError("Upload-Metadata is too long", code="bad-metadata")
    found: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in said.split(","))):
        key, _, value = pair.partition(" ")
        try:
            text = base64.b64decode(value.strip(), validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            raise InvalidInputError(
                f"Upload-Metadata: the value of {clean(key)!r} is not text in Base64", code="bad-metadata"
            ) from None
        if key in found:
            raise InvalidInputError(f"Upload-Metadata has {clean(key)!r} twice", code="bad-metadata")
        found[key] = text
    return found


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield the body in pieces that are worth a trip to a thread, but none is kept waiting for long.

    Raises:
        StalledError: If the client sends nothing for too long.
    """
    pieces: list[bytes] = []
    pending, since = 0, time.monotonic()
    stream = aiter(request.stream())
    try:
        while True:
            async with asyncio.timeout(STALLED_SEC):
                chunk = await anext(stream, None)
            if chunk is None:
                break
            pieces.append(chunk)
            pending += len(chunk)
            if pending >= _PIECE_BYTES or time.monotonic() - since >= _PIECE_SEC:
                yield b"".join(pieces)
                pieces, pending, since = [], 0, time.monotonic()
    except (ClientDisconnect, TimeoutError) as error:
        yield b"".join(pieces)  # what came before is worth keeping
        if isinstance(error, ClientDisconnect):
            raise
        raise StalledError("nothing came for too long: go on from the offset that the upload has") from None
    yield b"".join(pieces)


def _number(request: Request, header: str, code: str) -> int:
    text = request.headers.get(header, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise InvalidInputError(f"the header {header.title()} must be a number of bytes", code=code)
    return int(text)
