"""``/v1/jobs/{id}/report``: the report of a finished job, as JSON and as a page."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from tunefarm_api.dependencies import ServicesDep, operation
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.document import JobReport
from tunefarm_app.report.page import content_security_policy, page_name, report_page

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])


@router.get("/report", **operation("read", "Get the report", 404, 409))
def get_report(job_id: str, services: ServicesDep) -> JobReport:
    """What was measured, how, and what was not: of every job that has ended, also of one that failed or was cancelled.

    While a job is open the answer is the problem `not-finished`.
    """
    return job_report(services, job_id)


@router.get(
    "/report.html",
    response_class=HTMLResponse,
    **operation(
        "read",
        "Get the report as a page",
        404,
        409,
        answers={200: {"description": "The page: one file, complete in itself."}},
    ),
)
def get_report_page(job_id: str, services: ServicesDep) -> Response:
    """The same figures as one HTML file that loads nothing, runs no script, and prints. Its `ETag` is its SHA-256."""
    report = job_report(services, job_id)
    content = report_page(report).encode()
    return HTMLResponse(
        content,
        headers={
            "Content-Security-Policy": f"{content_security_policy()}; frame-ancestors 'none'; sandbox",
            "Content-Disposition": f'inline; filename="{page_name(report)}"',
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-cache",
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
        },
    )
