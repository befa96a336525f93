"""The page of one job, and the data of its curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.charts.curve import chart, measured_sec
from tunefarm_api.web.jobs.job_rows import JobRows, curve_of, job_rows
from tunefarm_api.web.jobs.job_view import (
    device_of,
    measured_speedup,
    progress_words,
    speedup_over_runtime,
    speedup_so_far,
)
from tunefarm_api.web.jobs.log_lines import log_line, words
from tunefarm_api.web.jobs.phases import phases_of
from tunefarm_api.web.jobs.report_view import (
    disturbance_note,
    kernels_note,
    latency_lines,
    other_shapes_line,
    shape_lines,
)
from tunefarm_api.web.jobs.task_view import task_lines
from tunefarm_api.web.jobs.time_bar import bar_parts
from tunefarm_api.web.rendering import page
from tunefarm_app.jobs.progress import share_done, time_left
from tunefarm_app.jobs.trace import job_trace
from tunefarm_app.leases.device_turns import why_waiting
from tunefarm_app.report.measurements import measured_beside, timed_beside, which_is_shown
from tunefarm_app.report.networks import curve_words, fastest_network, network_words, networks_of
from tunefarm_app.report.numbers import (
    latency_of,
    measured_words,
    reach_sentence,
    to_tune_words,
    tuned_words,
    untried_sentence,
)
from tunefarm_app.settings import Settings
from tunefarm_app.storage.job_options import searches
from tunefarm_db.states.job import JobState
from tunefarm_db.values import (
    Job,
    JobTask,
    StepKind,
)
from tunefarm_text import job_terms

router = APIRouter(include_in_schema=False)

LOG_LINES = 40

TASKS_SHOWN = 40
"""How many kernels are shown unless all are asked for: those that take longest."""

_PARTS = ("head", "kernels-and-log")


@router.get("/jobs/{job_id}", dependencies=[needs("read")])
def job_page(
    job_id: str,
    request: Request,
    services: ServicesDep,
    before: Annotated[int | None, Query(ge=1, lt=1 << 31)] = None,
    rounds: bool = True,
    kernels: Annotated[str, Query(max_length=10)] = "",
    part: Annotated[str | None, Header(alias="HX-Target")] = None,
) -> HTMLResponse:
    """A job's page, or a part of it that is renewed."""
    with services.uow.read() as repos:
        rows = job_rows(repos, job_id)
        events = repos.overview.newest_events(job_id, before=before, rounds=rounds, limit=LOG_LINES)
    answer = page(
        "job_part.html" if part in _PARTS else "job.html",
        request,
        part=part,
        here=_url(job_id, before=before, rounds=rounds, kernels=kernels),
        terms=job_terms,
        **_progress_values(rows, services.settings),
        **_result_values(rows),
        **_kernel_values(rows, are_all_shown=kernels == "all"),
        log=[log_line(event) for event in events],
        older=events[-1].seq if len(events) == LOG_LINES and events[-1].seq > 1 else None,
        before=before,
        rounds=rounds,
    )
    if part in _PARTS:
        answer.headers["Cache-Control"] = (
            "no-store"  # it must not come up as the page when somebody goes back
        )
    return answer


def _progress_values(rows: JobRows, settings: Settings) -> dict[str, Any]:
    """Return what the page shows of how far the job is."""
    job, report = rows.job, rows.report
    fastest = fastest_network(networks_of(rows.timings))
    newest = rows.draft or (rows.timings[-1] if rows.timings else None)
    is_at_compile = _is_timed_at_compile(report)
    return {
        "job": job,
        "model": rows.model,
        "waiting": why_waiting(job, rows.step, rows.now),
        "device": device_of(job),
        "phases": phases_of(job, rows.milestones, now=rows.now, imported=rows.imported, report=report),
        "share": share_done(job),
        "done_words": progress_words(job),
        "left": time_left(job, rows.curve.rates()),
        "time_parts": bar_parts(rows.trace.seconds()) if rows.trace is not None else [],
        "stop_words": words(job.stop_reason) if job.stop_reason else "",
        "can_pause": not job.state.is_finished and job.state is not JobState.PAUSED,
        "network_words": network_words(fastest) if fastest is not None else "",
        "curve_words": curve_words(job, rows.timings, settings, rows.first_draft, at_compile=is_at_compile),
        "measured_words": measured_words(rows.tasks),
        "to_tune_words": to_tune_words(rows.tasks),
        "tuned_words": "" if rows.artifact else tuned_words(rows.tasks, newest),
    }


def _result_values(rows: JobRows) -> dict[str, Any]:
    """Return what the page shows of the artifact, or of what there is until then."""
    job, artifact, measuring, report = rows.job, rows.artifact, rows.measuring, rows.report
    return {
        "artifact": artifact,
        "draft": rows.draft if artifact is None else None,
        "so_far": rows.so_far,
        "report": report,
        "run_name": quote(artifact.name) if artifact else "",
        "latency": latency_of(job),
        "latencies": latency_lines(report),
        "speedup": measured_speedup(job) or speedup_so_far(rows.tasks),
        "over_runtime": speedup_over_runtime(job),
        "disturbed": disturbance_note(report),
        "measuring": measuring,
        "which_counts": which_is_shown(measuring.items) if measuring is not None else "",
        "beside": timed_beside(measuring.items) if measuring is not None else [],
        "measured_beside": () if artifact is None else measured_beside(job, artifact),
        "shapes": shape_lines(report),
        "other_shapes": other_shapes_line(report),
    }


def _kernel_values(rows: JobRows, *, are_all_shown: bool) -> dict[str, Any]:
    """Return what the page shows of the job's kernels."""
    lines = task_lines(rows.tasks, rows.model_tasks, rows.report, rows.rooflines)
    shown = len(lines) if are_all_shown else min(len(lines), TASKS_SHOWN)
    return {
        "tasks": lines,
        "shown": shown,
        "shown_share": sum(line.share or 0.0 for line in lines[:shown]),
        "untried": _unreached(rows.job, rows.tasks, rows.report),
        "kernels_note": kernels_note(rows.tasks, rows.report),
    }


@router.get("/jobs/{job_id}/trace.json", dependencies=[needs("read")])
def job_trace_file(job_id: str, services: ServicesDep) -> Response:
    """The trace as a Chrome trace file."""
    with services.uow.read() as repos:
        trace = job_trace(repos, repos.jobs.get(job_id)).to_chrome()
    headers = {"Content-Disposition": f'attachment; filename="{job_id}-trace.json"'}
    return JSONResponse(trace, headers=headers)


@router.get("/jobs/{job_id}/curve.json", dependencies=[needs("read")])
def job_curve(job_id: str, request: Request, services: ServicesDep) -> Response:
    """The whole curve, cut down; nothing where the page has the newest event already."""
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        etag = f'"{job.event_seq}"'
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        artifact = repos.artifacts.for_job(job_id)
        earlier = repos.overview.earlier_report(job) if artifact is None else None
        curve = curve_of(repos, job_id)
        tasks = repos.jobs.tasks(job_id)
        networks = repos.network_timings.of(job_id)
        first_draft = repos.steps.find(StepKind.DRAFT, job_id)
    report = None if artifact is None else artifact.report
    drawn: dict[str, Any] = chart(curve, report, earlier, tuned_sec=job.tuned_sec, trials=job.trials)
    return JSONResponse(
        {
            **drawn,
            "running": not job.state.is_finished,
            "blank": _blank(job, tasks),
            "note": curve_words(
                job, networks, services.settings, first_draft, at_compile=_is_timed_at_compile(report)
            ),
        },
        headers=headers,
    )


def _is_timed_at_compile(report: Mapping[str, Any] | None) -> bool:
    """Return whether the compile timed the network, untuned and as the artifact."""
    latency = (report or {}).get("latency") or {}
    return all(measured_sec(latency, name) for name in ("untuned", "tuned"))


def _unreached(job: Job, tasks: Sequence[JobTask], report: Mapping[str, Any] | None) -> str:
    if not searches(job):
        return ""
    over = job.state.is_finished or job.stop_reason
    return untried_sentence(tasks, report) if over else reach_sentence(job, tasks)


def _blank(job: Job, tasks: Sequence[JobTask]) -> str:
    """Return why there is no curve, while there is none."""
    if not searches(job):
        return "There is no search."
    finished = job.state.is_finished
    if not any(task.best_cost_sec is not None for task in tasks):
        return (
            "There are no measurements."
            if finished
            else "The curve starts when every kernel has a working config."
        )
    so_far = f"{measured_words(tasks)}. The curve is the sum of all kernels"
    return (
        f"{so_far}, so there is no curve."
        if finished
        else f"{so_far}: it starts when every kernel has a working config."
    )


def _url(job_id: str, *, before: int | None, rounds: bool, kernels: str) -> str:
    query = {"before": before or "", "rounds": "" if rounds else "false", "kernels": kernels}
    text = urlencode({name: value for name, value in query.items() if value})
    return f"/jobs/{job_id}?{text}" if text else f"/jobs/{job_id}"
