"""``/v1/uploads``: upload a network in parts (tus 1.0)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of, needs
from tunefarm_api.dependencies import ServicesDep, operation
from tunefarm_api.paths import API_UPLOADS, TUS_VERSION
from tunefarm_api.schemas.base import Page
from tunefarm_api.schemas.upload import Upload
from tunefarm_api.transfer import tus
from tunefarm_app.models.uploads import end_upload, find_upload, list_uploads

router = APIRouter(prefix=API_UPLOADS, tags=["uploads"])

_BODY = {
    "requestBody": {
        "required": True,
        "description": "The file's bytes from the offset, as many as desired.",
        "content": {tus.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}

Resumable = Annotated[
    str | None, Header(alias="Tus-Resumable", description="The protocol's version: `1.0.0`.", max_length=20)
]


def _headers(**descriptions: str) -> dict[str, Any]:
    headers = {"Tus-Resumable": "The protocol's version.", **descriptions}
    return {
        "headers": {
            name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
            for name, text in headers.items()
        }
    }


_OFFSET = "Number of bytes stored."
_EXPIRES = "Expiry time if no more bytes arrive."


@router.options("", dependencies=[needs("write")], include_in_schema=False)
async def upload_capabilities(services: ServicesDep) -> Response:
    """Names the version and the extensions of the tus protocol, and the largest file."""
    return tus.capabilities(services)


@router.post(
    "",
    status_code=201,
    **operation(
        "write",
        "Create an upload",
        409,
        412,
        413,
        507,
        answers={
            201: _headers(Location="The upload's path.", Upload_Offset=_OFFSET, Upload_Expires=_EXPIRES)
        },
    ),
)
async def begin_an_upload(
    request: Request,
    response: Response,
    services: ServicesDep,
    _version: Resumable = None,
    _length: Annotated[
        str | None, Header(alias="Upload-Length", description="The file's size in bytes. Required.")
    ] = None,
    _metadata: Annotated[
        str | None,
        Header(
            alias="Upload-Metadata",
            description="Pairs of a key and a Base64 text: `filename` (the model's name), `shapes` (lines like "
            "`x=1,3,224,224`), `values` (lines like `sr=16000`), `sha256` (the file's hash, which is checked), `tags` (with spaces "
            "between them) and `note`, which the model gets. Other keys are stored but not used.",
        ),
    ] = None,
) -> Upload:
    """Uploads follow tus 1.0 with the extensions creation, termination and expiration: any tus client works.

    OPTIONS lists these for programs. Create an upload here, send its bytes with PATCH, and after an interruption get
    the offset with HEAD. After its last byte an upload becomes a model, as with `POST /v1/models`. Only its API key
    sees an upload.
    """
    upload = await tus.begin(request, services)
    response.headers.update(tus.answer_headers(upload))
    response.headers["Location"] = f"{API_UPLOADS}/{upload.id}"
    return Upload.model_validate(upload)


@router.get("", **operation("read", "List your uploads"))
def list_own_uploads(
    request: Request,
    services: ServicesDep,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of items.")] = 100,
) -> Page[Upload]:
    """The uploads of this API key, newest first. Finished uploads stay until they expire. Never split into parts."""
    uploads = list_uploads(services, api_key_id=key_of(request).id, limit=limit)
    return Page[Upload](items=[Upload.model_validate(upload) for upload in uploads], next_cursor=None)


@router.get(
    "/{upload_id}",
    response_model=Upload,
    **operation(
        "read",
        "Get an upload's offset",
        404,
        answers={
            200: _headers(Upload_Offset=_OFFSET, Upload_Length="The file's size.", Upload_Expires=_EXPIRES)
        },
    ),
)
def get_upload(upload_id: str, request: Request, services: ServicesDep) -> JSONResponse:
    """HEAD returns it in headers only."""
    return tus.upload_response(find_upload(services, upload_id, api_key_id=key_of(request).id))


@router.patch(
    "/{upload_id}",
    status_code=204,
    response_class=Response,
    openapi_extra=_BODY,
    **operation(
        "write",
        "Send a part of an upload",
        404,
        408,
        409,
        412,
        413,
        415,
        423,
        507,
        answers={204: _headers(Upload_Offset=_OFFSET, Upload_Expires=_EXPIRES)},
    ),
)
async def send_part(
    upload_id: str,
    request: Request,
    services: ServicesDep,
    _version: Resumable = None,
    _offset: Annotated[
        str | None, Header(alias="Upload-Offset", description="Offset of the first byte. Required.")
    ] = None,
) -> Response:
    """Received bytes are kept however the request ends: get the upload's offset and continue from there.

    Only one request may write at a time (423), from the upload's offset (409). The response to the last part comes
    after the model is registered; the upload's `model_id` names it.
    """
    upload = await tus.write_part(request, services, upload_id)
    return Response(status_code=204, headers=tus.answer_headers(upload))


@router.delete(
    "/{upload_id}", status_code=204, response_class=Response, **operation("write", "Delete an upload", 404)
)
async def remove_upload(upload_id: str, request: Request, services: ServicesDep) -> Response:
    """Deletes its bytes. A model made from it stays."""
    await run_in_threadpool(end_upload, services, upload_id, api_key_id=key_of(request).id)
    return Response(status_code=204, headers={"Tus-Resumable": TUS_VERSION})
