"""Health, readiness, checks and metrics.

Health and readiness are the only routes without a key: they say no more than an orchestrator needs.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import PlainTextResponse

from tunefarm_api.dependencies import ServicesDep, operation
from tunefarm_api.kept_answer import KeptAnswer
from tunefarm_api.metrics.farm import render_metrics
from tunefarm_api.schemas.health import Check, Checks, Health, Readiness
from tunefarm_app.operations.check_results import CheckResult, Verdict

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Health:
    """Answers while the process runs; checks nothing else."""
    return Health(status="ok", version=version("tunefarm"))


@router.get(
    "/readyz",
    summary="Can requests be served?",
    responses={503: {"model": Readiness, "description": "A required check failed."}},
)
async def readyz(request: Request, services: ServicesDep, response: Response) -> Readiness:
    """Reads database, schema and store, at most once in two seconds. It reports the broker, but jobs are accepted without it."""
    kept: KeptAnswer[Readiness] = request.app.state.readiness
    readiness = await kept.of(services)
    response.status_code = 200 if readiness.ready else 503
    return readiness


@router.get("/v1/checks", **operation("read", "Check the whole farm"))
async def examine_farm(request: Request, services: ServicesDep) -> Checks:
    """Checks all services of the farm and gives advice, as shown by `tunefarm doctor`; at most once in two seconds.

    Takes some seconds if parts are down. Orchestrators should use `/readyz`.
    """
    kept: KeptAnswer[tuple[CheckResult, ...]] = request.app.state.checks
    findings = await kept.of(services)
    return Checks(
        ok=all(finding.verdict is not Verdict.FAILED for finding in findings),
        time=time.time(),
        checks=[Check.model_validate(finding) for finding in findings],
    )


@router.get("/metrics", response_class=PlainTextResponse, **operation("read", "Metrics for Prometheus"))
def metrics(services: ServicesDep, accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
    """Computed from the database at each request: any API process answers for the whole farm."""
    content, media_type = render_metrics(services, accept)
    return Response(content, headers={"Content-Type": media_type})
