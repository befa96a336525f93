"""``/v1/sweeps``: several jobs at once, with one budget."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import HTMLResponse

from tunefarm_api.dependencies import ServicesDep, SweepId, operation
from tunefarm_api.routes.jobs import terms_of
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.sweep import SweepCreate
from tunefarm_app.jobs.sweeps import RefusedFile, SweepRequest, cancel_sweep, submit_sweep
from tunefarm_app.jobs.terms import JobTerms
from tunefarm_app.report.page import content_security_policy
from tunefarm_app.report.sweeps import SweepHead, SweepReport, sweep_page, sweep_report, sweep_report_page
from tunefarm_app.runtime.composition import Services
from tunefarm_tuning.core.errors import InvalidInputError

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"])

_TERMS = {field.name for field in fields(JobTerms)}


@router.post(
    "",
    status_code=201,
    **operation(
        "write",
        "Start a sweep",
        404,
        409,
        410,
        answers={
            200: {
                "model": SweepReport,
                "description": "An earlier request with this idempotency key created the sweep.",
            }
        },
    ),
)
def create_sweep(
    body: SweepCreate,
    response: Response,
    services: ServicesDep,
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="Requests with equal keys create one sweep. Reusing a key with a different body is a conflict.",
        ),
    ] = None,
) -> SweepReport:
    """Each combination of a model, a pool and a precision becomes a job, at most 64 of them.

    Pools work side by side: each has all of the budget's time, which its jobs share equally. All jobs share the trials equally;
    patience and minimum gain apply to each job by itself. A combination that cannot be tuned (a model that failed, a precision that a pool's
    target lacks) is `refused` and takes no share; the others are tuned.
    """
    if body.device_key is not None or body.options.precision is not None:
        raise InvalidInputError(
            "a sweep names its pools in `device_keys` and its precisions in `precisions`",
            code="invalid-request",
        )
    with services.uow.read() as repos:
        model_ids = [repos.references.find("model", model_id) for model_id in body.model_ids]
        samples: dict[str, list[str]] = {}
        for model_id, ids in body.samples.items():
            if ids:  # a model can have several names here
                samples.setdefault(repos.references.find("model", model_id), []).extend(
                    repos.references.find("samples", text) for text in ids
                )
    request = SweepRequest(
        model_ids=model_ids,
        device_keys=body.device_keys,
        precisions=body.precisions,
        terms=JobTerms(**{name: term for name, term in terms_of(body).items() if name in _TERMS}),
        samples=samples,
        refused=[RefusedFile(**file.model_dump()) for file in body.refused],
        tags=body.tags,
        note=body.note,
    )
    submitted = submit_sweep(services, request, idempotency_key=idempotency_key)
    if not submitted.created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/sweeps/{submitted.sweep.id}"
    return _report(services, submitted.sweep.id)


@router.get("", **operation("read", "List sweeps"))
def list_sweeps(
    services: ServicesDep, limit: Limit = 50, cursor: Annotated[str | None, cursor_of("swp")] = None
) -> Page[SweepHead]:
    """Newest first, without their rows."""
    with services.uow.read() as repos:
        page = sweep_page(repos, cursor=cursor, limit=limit)
    return Page[SweepHead](items=list(page.items), next_cursor=page.next_cursor)


@router.get("/{sweep_id}", **operation("read", "Get a sweep", 404))
def get_sweep(sweep_id: SweepId, services: ServicesDep) -> SweepReport:
    """A sweep with a row for each combination, while it runs and afterwards."""
    return _report(services, sweep_id)


@router.get("/{sweep_id}/report", **operation("read", "Get a sweep's report", 404))
def get_sweep_report(sweep_id: SweepId, services: ServicesDep) -> SweepReport:
    """The same as the sweep itself, as for jobs; each job has its own report."""
    return _report(services, sweep_id)


@router.get(
    "/{sweep_id}/report.html",
    response_class=HTMLResponse,
    **operation(
        "read",
        "Get a sweep's report as a page",
        404,
        answers={200: {"description": "The page: one self-contained file."}},
    ),
)
def get_sweep_report_page(sweep_id: SweepId, services: ServicesDep) -> Response:
    """The report as one self-contained HTML file without scripts."""
    content = sweep_report_page(_report(services, sweep_id)).encode()
    return HTMLResponse(
        content,
        headers={
            "Content-Security-Policy": f"{content_security_policy()}; frame-ancestors 'none'; sandbox",
            "Content-Disposition": f'inline; filename="{sweep_id}.report.html"',
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-cache",
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
        },
    )


@router.post("/{sweep_id}/cancel", **operation("write", "Cancel a sweep", 404))
def stop_sweep(sweep_id: SweepId, services: ServicesDep) -> SweepReport:
    """Cancels all of its jobs that have not ended. Records stay, and so do the artifacts of those that have."""
    cancel_sweep(services, sweep_id)
    return _report(services, sweep_id)


def _report(services: Services, sweep_id: str) -> SweepReport:
    with services.uow.read() as repos:
        return sweep_report(repos, sweep_id)
