"""The page that shows jobs side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.rendering import page
from tunefarm_app.report.comparison import LEAST, MOST, ComparedJob, compare_jobs
from tunefarm_text.job_terms import RUNTIMES, runtime_title
from tunefarm_text.quantities import duration, latency

router = APIRouter(include_in_schema=False)

WIDTH, HEIGHT = 640, 240
_LEFT, _BOTTOM, _TOP = 74.0, 24.0, 8.0
_OFFERED = 12
_KERNELS_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves on common axes: seconds of search across, the sum of the kernels' best times up, on a logarithmic scale.

    Attributes:
        lines: Points of a polyline for each job; empty if it has no curve.
        across: Position and text of the marks across.
        up: The same of the marks up.
    """

    lines: tuple[str, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]


@router.get("/jobs/compare", dependencies=[needs("read")])
def comparison_page(
    request: Request,
    services: ServicesDep,
    job: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006  (FastAPI copies it)
) -> HTMLResponse:
    """Jobs side by side; with fewer than two, the choice of others alone."""
    chosen = [text for text in dict.fromkeys(name.strip() for name in job) if text]
    with services.uow.read() as repos:
        comparison = compare_jobs(repos, chosen) if LEAST <= len(chosen) <= MOST else None
        given = [repos.jobs.get(job_id) for job_id in chosen]
        newest = repos.overview.jobs(limit=_OFFERED)[0]
        same = repos.jobs.list(model_id=given[0].model_id, limit=_OFFERED).items if given else ()
        names = {job.model_id: repos.models.get(job.model_id, deleted=True).name for job in given}
    offered = {job.id: (names[job.model_id], job) for job in (*given, *same)} | {
        listed.job.id: (listed.model_name, listed.job) for listed in newest
    }
    return page(
        "comparison.html",
        request,
        chosen=chosen,
        comparison=comparison,
        too_many=len(chosen) > MOST,
        most=MOST,
        chart=None if comparison is None else chart_of(comparison.jobs),
        beside=[]
        if comparison is None
        else [
            name
            for name in RUNTIMES
            if name != "onnxruntime" and any(name in item.ratios for item in comparison.jobs)
        ],
        runtime_title=runtime_title,
        kernels=[] if comparison is None else comparison.kernels[:_KERNELS_SHOWN],
        offered=list(offered.values())[:_OFFERED],
        width=WIDTH,
        height=HEIGHT,
    )


def chart_of(jobs: Sequence[ComparedJob]) -> Chart | None:
    """Return the curves of jobs; None if none has a curve."""
    curves = [job.curve for job in jobs]
    ends = [max(job.tuned_sec, curve[-1][0]) for job, curve in zip(jobs, curves, strict=True) if curve]
    values = [value for curve in curves for _, value in curve if value > 0]
    if not values:
        return None
    longest, low, high = max([*ends, 1e-9]), min(values), max(values)
    if high <= 1.02 * low:
        low, high = low / 1.1, high * 1.1

    def x_of(sec: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - 12) * sec / longest, 1)

    def y_of(value: float) -> float:
        share = log(max(value, low) / low) / log(high / low)
        return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - share), 1)

    lines = []
    for job, curve in zip(jobs, curves, strict=True):
        steps = [f"{x_of(curve[0][0])},{y_of(curve[0][1])}"] if curve else []
        for (_, before), (sec, value) in itertools.pairwise(curve):
            steps += [f"{x_of(sec)},{y_of(before)}", f"{x_of(sec)},{y_of(value)}"]
        if curve:
            steps.append(f"{x_of(max(job.tuned_sec, curve[-1][0]))},{y_of(curve[-1][1])}")
        lines.append(" ".join(steps))
    marks = [low * (high / low) ** (number / 3) for number in range(4)]
    return Chart(
        lines=tuple(lines),
        across=tuple((x_of(longest * number / 4), duration(longest * number / 4)) for number in range(5)),
        up=tuple((y_of(value), latency(value)) for value in marks),
    )
