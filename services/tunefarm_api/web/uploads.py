"""The dashboard's own path for uploads: ``/v1/uploads`` for browsers that are signed in."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of, needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.transfer import tus
from tunefarm_api.web.paths import UPLOADS
from tunefarm_app.models.uploads import end_upload, find_upload

router = APIRouter(include_in_schema=False)


@router.post(UPLOADS, dependencies=[needs("write")])
async def begin_an_upload(request: Request, services: ServicesDep) -> Response:
    """Begin an upload in parts."""
    upload = await tus.begin(request, services)
    headers = {**tus.answer_headers(upload), "Location": f"{UPLOADS}/{upload.id}"}
    return Response(status_code=201, headers=headers)


@router.get(f"{UPLOADS}/{{upload_id}}", dependencies=[needs("read")])
def get_upload(upload_id: str, request: Request, services: ServicesDep) -> JSONResponse:
    """Say how far an upload is."""
    return tus.upload_response(find_upload(services, upload_id, api_key_id=key_of(request).id))


@router.patch(f"{UPLOADS}/{{upload_id}}", dependencies=[needs("write")])
async def send_part(upload_id: str, request: Request, services: ServicesDep) -> Response:
    """Take in a part of an upload."""
    upload = await tus.write_part(request, services, upload_id)
    return Response(status_code=204, headers=tus.answer_headers(upload))


@router.delete(f"{UPLOADS}/{{upload_id}}", dependencies=[needs("write")])
async def remove_upload(upload_id: str, request: Request, services: ServicesDep) -> Response:
    """Drop an upload."""
    await run_in_threadpool(end_upload, services, upload_id, api_key_id=key_of(request).id)
    return Response(status_code=204)
