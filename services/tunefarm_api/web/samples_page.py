"""A model's samples, for signed-in browsers: the paths that the model's page and its script use."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ModelId, ServicesDep
from tunefarm_api.schemas.samples import SampleFile
from tunefarm_api.transfer.upload import receive_samples
from tunefarm_app.models.samples import delete_samples, find_samples

router = APIRouter(include_in_schema=False)


@router.post("/models/{model_id}/samples", dependencies=[needs("write")])
async def send_samples(
    model_id: ModelId,
    request: Request,
    services: ServicesDep,
    name: Annotated[str, Query(max_length=300)] = "samples",
) -> JSONResponse:
    """Take in a file of samples, whose check then begins."""
    submitted = await receive_samples(request, services, model_id, name)
    return JSONResponse(SampleFile.model_validate(submitted.samples).model_dump(mode="json"), 202)


@router.get("/models/{model_id}/samples/{samples_id}", dependencies=[needs("read")])
def get_samples(model_id: ModelId, samples_id: str, services: ServicesDep) -> JSONResponse:
    """Say whether samples are checked."""
    samples = find_samples(services, model_id, samples_id)
    return JSONResponse(SampleFile.model_validate(samples).model_dump(mode="json"))


@router.post("/models/{model_id}/samples/{samples_id}/delete", dependencies=[needs("write")])
async def remove_samples(model_id: ModelId, samples_id: str, services: ServicesDep) -> Response:
    """Delete samples."""
    await run_in_threadpool(delete_samples, services, model_id, samples_id)
    return RedirectResponse(f"/models/{model_id}", 303)
