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
from tunefarm_app.report.networks import network_words
from tunefarm_text.job_terms import COMPARED_TIMES, RUNTIMES, runtime_title
from tunefarm_text.quantities import duration, latency

router = APIRouter(include_in_schema=False)

WIDTH, HEIGHT = 640, 240
_LEFT, _RIGHT, _BOTTOM, _TOP = 74.0, 16.0, 24.0, 8.0
_OFFERED = 12
_KERNELS_SHOWN = 60
_LEAST_POINTS = 2
"""So many measurements of a network, or estimates, make a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """The whole network, as it was measured: its position, and the ends of its interval as heights."""

    x: float
    y: float
    low: float
    high: float
    is_artifact: bool
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What the chart shows of a job.

    Attributes:
        sums: Points of a polyline: the sum of the kernels' best times, an estimate. Empty if there is none.
        measured: The same of the whole network as it was measured during the search. Empty if it was not.
        dots: Those measurements, and the artifact's at the end.
    """

    sums: str
    measured: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Latencies over the seconds of search, on common axes; upwards on a logarithmic scale.

    Attributes:
        lines: One for each job.
        left_out: Estimates outside of the chart, in words: a single one does not decide how far it reaches.
        across: Position and text of the marks across.
        up: The same of the marks up.
    """

    lines: tuple[Line, ...]
    left_out: tuple[str, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]

    @property
    def has_artifacts(self) -> bool:
        """Whether an artifact was measured."""
        return any(dot.is_artifact for line in self.lines for dot in line.dots)

    @property
    def has_sums(self) -> bool:
        """Whether a curve is drawn of the sums of a job's kernels."""
        return any(line.sums for line in self.lines)

    @property
    def has_points(self) -> bool:
        """Whether a network was measured untuned, or during its search."""
        return any(not dot.is_artifact for line in self.lines for dot in line.dots)


@router.get("/jobs/compare", dependencies=[needs("read")])
def comparison_page(
    request: Request,
    services: ServicesDep,
    job: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006  (FastAPI copies it)
    text: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Jobs side by side; with fewer than two, the choice of others alone, of those with a text if there is one."""
    text = text.strip()
    chosen = list(filter(None, dict.fromkeys(name.strip() for name in job)))
    with services.uow.read() as repos:
        comparison = compare_jobs(repos, chosen) if LEAST <= len(chosen) <= MOST else None
        given = [repos.jobs.get(job_id) for job_id in chosen]
        newest, matching = repos.overview.jobs(text=text, limit=_OFFERED)
        same = repos.jobs.list(model_id=given[0].model_id, limit=_OFFERED).items if given and not text else ()
        names = repos.models.names([job.model_id for job in given])
    shared = [] if comparison is None else [kernel for kernel in comparison.kernels if kernel.is_shared]
    offered = {job.id: (names[job.model_id], job) for job in (*given, *same)} | {
        listed.job.id: (listed.model_name, listed.job) for listed in newest
    }
    shown = list(offered.values())[:_OFFERED]
    matches = {listed.job.id for listed in newest} if text else offered
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
        compared_times=COMPARED_TIMES,
        kernels=shared[:_KERNELS_SHOWN],
        shared=len(shared),
        offered=shown,
        text=text,
        matching=matching,
        unlisted=matching - sum(job.id in matches for _, job in shown),
        width=WIDTH,
        height=HEIGHT,
    )


def chart_of(jobs: Sequence[ComparedJob]) -> Chart | None:
    """Return the latencies of jobs over their searches; None if nothing is known of any."""
    measured = [_measured(job) for job in jobs]
    # A sum of kernels tells less than the network's own times, where these make a curve.
    sums = [
        [(at_sec, sec) for at_sec, sec in job.curve if sec > 0] if len(points) < _LEAST_POINTS else []
        for job, points in zip(jobs, measured, strict=True)
    ]
    values = [sec for points in measured for point in points for sec in point.bounds]
    values += [sec for curve in sums if len(curve) >= _LEAST_POINTS for _, sec in curve]
    values = values or [sec for curve in sums for _, sec in curve]
    if not values:
        return None
    longest = max([*(_end_sec(job) for job in jobs), 1e-9])
    low, high = min(values), max(values)
    if high <= 1.02 * low:
        low, high = low / 1.1, high * 1.1

    def x_of(sec: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * sec / longest, 1)

    def y_of(value: float) -> float:
        share = log(max(value, low) / low) / log(high / low)
        return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - share), 1)

    def stairs(points: Sequence[tuple[float, float]], until_sec: float) -> str:
        if not points:
            return ""
        steps = [(x_of(points[0][0]), y_of(points[0][1]))]
        for (_, before), (sec, value) in itertools.pairwise(points):
            steps += [(x_of(sec), y_of(before)), (x_of(sec), y_of(value))]
        steps.append((x_of(max(until_sec, points[-1][0])), y_of(points[-1][1])))
        return " ".join(f"{x},{y}" for x, y in steps)

    def dot(point: _Measured) -> Dot:
        return Dot(
            x=x_of(point.at_sec),
            y=y_of(point.sec),
            low=y_of(point.low_sec),
            high=y_of(point.high_sec),
            is_artifact=point.is_artifact,
            title=point.title,
        )

    left_out = [
        f"{job.model_name} …{job.id[-6:]}: {latency(curve[0][1])}"
        for job, curve in zip(jobs, sums, strict=True)
        if curve and not low <= curve[0][1] <= high  # of several, all are inside
    ]
    marks = [low * (high / low) ** (number / 3) for number in range(4)]
    return Chart(
        lines=tuple(
            Line(
                sums=stairs([point for point in curve if low <= point[1] <= high], _end_sec(job)),
                measured=stairs([(point.at_sec, point.sec) for point in points], _end_sec(job)),
                dots=tuple(dot(point) for point in points),
            )
            for job, points, curve in zip(jobs, measured, sums, strict=True)
        ),
        left_out=tuple(left_out),
        across=tuple((x_of(longest * number / 4), duration(longest * number / 4)) for number in range(5)),
        up=tuple((y_of(value), latency(value)) for value in marks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The whole network, measured after so many seconds of search."""

    at_sec: float
    sec: float
    low_sec: float
    high_sec: float
    is_artifact: bool
    title: str

    @property
    def bounds(self) -> tuple[float, float]:
        return self.low_sec, self.high_sec


def _measured(job: ComparedJob) -> list[_Measured]:
    """Return the measurements of a job's network during its search, and of its artifact."""
    points = [
        _Measured(
            at_sec=network.tuned_sec,
            sec=network.latency_sec,
            low_sec=network.low_sec or network.latency_sec,
            high_sec=network.high_sec or network.latency_sec,
            is_artifact=False,
            title=f"{job.model_name}: {latency(network.latency_sec)}, {network_words(network)}",
        )
        for network in job.networks
    ]
    if job.artifact_bytes is not None and job.is_measured and job.latency_sec:
        disturbed = ", disturbed by other work" if job.is_disturbed else ""
        if job.tuned_sec and (untuned := job.ratios.get("untuned")) is not None:
            untuned_sec = untuned.value * job.latency_sec
            points.insert(
                0,
                _Measured(
                    at_sec=0.0,
                    sec=untuned_sec,
                    low_sec=untuned_sec,
                    high_sec=untuned_sec,
                    is_artifact=False,
                    title=f"{job.model_name}: {latency(untuned_sec)}, untuned, measured at the compile{disturbed}",
                ),
            )
        points.append(
            _Measured(
                at_sec=_end_sec(job),
                sec=job.latency_sec,
                low_sec=job.latency_sec,
                high_sec=job.latency_sec,
                is_artifact=True,
                title=f"{job.model_name}: {latency(job.latency_sec)}, the artifact{disturbed}",
            )
        )
    return points


def _end_sec(job: ComparedJob) -> float:
    return max(
        [job.tuned_sec, *(sec for sec, _ in job.curve), *(network.tuned_sec for network in job.networks)]
    )
