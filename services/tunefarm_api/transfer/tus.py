"""The protocol tus 1.0 (https://tus.io/protocols/resumable-upload) for uploads in parts.

The API's routes and the dashboard's share these functions; they differ in how they authenticate.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from email.utils import formatdate

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of
from tunefarm_api.paths import TUS_VERSION
from tunefarm_api.schemas.upload import Upload as UploadSchema
from tunefarm_api.transfer.upload import (
    STALLED_SEC,
    announced_bytes,
    body_pieces,
    closing_unless_read,
    media_type,
)
from tunefarm_app.models.labels import check_note, check_tags, label_model
from tunefarm_app.models.upload_part import UploadPart
from tunefarm_app.models.uploads import begin_upload
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Upload, UploadState
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload.binding_text import parse_values
from tunefarm_tuning.workload.shapes import read_shape_lines

EXTENSIONS = "creation,expiration,termination"
MEDIA_TYPE = "application/offset+octet-stream"

_MAX_METADATA_BYTES = 8192
_MAX_DIGITS = 18


def answer_headers(upload: Upload) -> dict[str, str]:
    """Return the headers of every answer about an upload."""
    headers = {"Tus-Resumable": TUS_VERSION, "Upload-Expires": formatdate(upload.expires_at, usegmt=True)}
    if upload.state is not UploadState.FAILED:  # without an offset no client tries to resume
        headers["Upload-Offset"] = str(upload.offset_bytes)
    return headers


def upload_response(upload: Upload) -> JSONResponse:
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
        InvalidInputError: ``bad-length``, ``bad-metadata``; errors of `begin_upload`, `read_shape_lines`, `parse_values`, `check_tags` and
            `check_note`.
    """
    check_version(request)
    header = request.headers.get("upload-metadata", "")
    metadata = parse_metadata(header)
    size_bytes = _number(request, "upload-length", "bad-length")
    name = metadata.get("filename") or metadata.get("name") or "model"
    shapes = read_shape_lines([line for line in metadata.get("shapes", "").splitlines() if line.strip()])
    values = parse_values([line for line in metadata.get("values", "").splitlines() if line.strip()])
    tags, note = _labels(metadata)
    check_tags(tags)
    check_note(note)
    return await run_in_threadpool(
        begin_upload,
        services,
        api_key_id=key_of(request).id,
        name=name,
        size_bytes=size_bytes,
        shapes=shapes,
        values=values,
        sha256=metadata.get("sha256") or None,
        metadata=header,
    )


async def write_part(request: Request, services: Services, upload_id: str) -> Upload:
    """Write a PATCH's bytes to its upload, and return the upload. Received bytes are kept even if this fails.

    Raises:
        ConflictError: ``tus-version``.
        InvalidInputError: ``too-large``, ``unsupported-media-type``, ``bad-offset``; what `UploadPart` raises, as for the
            other errors.
        StalledError: If no byte comes for `STALLED_SEC`.
        ClientDisconnect: If the client goes away.
    """
    with closing_unless_read(request):
        more_bytes = announced_bytes(request, services.settings.max_upload_bytes)
        check_version(request)
        if media_type(request) != MEDIA_TYPE:
            raise InvalidInputError(
                f"send the file's bytes as {MEDIA_TYPE}, from the offset on", code="unsupported-media-type"
            )
        part = await run_in_threadpool(
            UploadPart,
            services,
            upload_id,
            api_key_id=key_of(request).id,
            offset_bytes=_number(request, "upload-offset", "bad-offset"),
            more_bytes=more_bytes,
        )
        try:
            async for piece in body_pieces(request, stalled_sec=STALLED_SEC):
                await run_in_threadpool(part.write, piece)
            upload = await run_in_threadpool(part.end)
            await run_in_threadpool(_label, services, upload)
            return upload
        finally:
            await run_in_threadpool(part.close)


def _labels(metadata: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the tags, between which are spaces or commas, and the note."""
    return metadata.get("tags", "").replace(",", " ").split(), metadata.get("note", "")


def _label(services: Services, upload: Upload) -> None:
    """Give the model that an upload became the tags and the note that came with it; what did not come stays."""
    tags, note = _labels(parse_metadata(upload.metadata))
    if upload.model_id is not None and (tags or note):
        label_model(services, upload.model_id, tags=tags or None, note=note or None)


def check_version(request: Request) -> None:
    """Refuse another version of the protocol. A request without one passes.

    Raises:
        ConflictError: ``tus-version``.
    """
    version = request.headers.get("tus-resumable")
    if version not in (None, TUS_VERSION):
        raise ConflictError(
            f"this server supports only tus {TUS_VERSION}", code="tus-version", versions=[TUS_VERSION]
        )


def parse_metadata(header: str) -> Mapping[str, str]:
    """Read ``Upload-Metadata``: pairs of a key and a text in Base64, separated by commas.

    Raises:
        InvalidInputError: ``bad-metadata``.
    """
    if len(header) > _MAX_METADATA_BYTES:
        raise InvalidInputError("Upload-Metadata is too long", code="bad-metadata")
    metadata: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in header.split(","))):
        key, _, value = pair.partition(" ")
        try:
            text = base64.b64decode(value.strip(), validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            raise InvalidInputError(
                f"Upload-Metadata: the value of {clean(key)!r} is not text in Base64", code="bad-metadata"
            ) from None
        if key in metadata:
            raise InvalidInputError(f"Upload-Metadata has {clean(key)!r} twice", code="bad-metadata")
        metadata[key] = text
    return metadata


def _number(request: Request, header: str, code: str) -> int:
    text = request.headers.get(header, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise InvalidInputError(f"the header {header.title()} must be a number of bytes", code=code)
    return int(text)
