"""``/metrics``: the farm's metrics for Prometheus."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import PlainTextResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.errors.problems import problems
from tunefarm_api.metrics.farm import render_metrics

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    dependencies=[needs("read")],
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses=problems(),
)
def metrics(services: ServicesDep, accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
    """Worked out from the database at each look, so any API process answers for the whole farm."""
    content, media_type = render_metrics(services, accept)
    return Response(content, headers={"Content-Type": media_type})
