"""``/v1/jobs/{id}/…``: the tasks, trials, records, events, artifact, report and kernel sources of a job."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, StreamingResponse

from tunefarm_api.dependencies import JobId, ServicesDep, note_download, operation
from tunefarm_api.methods import method_of
from tunefarm_api.schemas.base import Cursor, Limit, Page, cursor_of
from tunefarm_api.schemas.job import Event, JobTask, MeasureIn, Measurements, Trial
from tunefarm_api.schemas.peak import Roofline
from tunefarm_api.schemas.record import Record
from tunefarm_api.transfer.download import Download
from tunefarm_api.transfer.json_lines import MEDIA_TYPE as JSON_LINES
from tunefarm_api.transfer.json_lines import job_records
from tunefarm_api.transfer.source_text import source_response
from tunefarm_api.views import record_page_out
from tunefarm_app.jobs.artifacts import (
    artifact_of,
    best_so_far,
    check_signed,
    open_artifact,
    signed_statement,
)
from tunefarm_app.jobs.measure_again import measure_again, measuring_of
from tunefarm_app.jobs.trace import job_trace
from tunefarm_app.records.rooflines import job_rooflines
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.document import JobReport
from tunefarm_app.report.evidence import Evidence
from tunefarm_app.report.numbers import kernel_numbers, time_shares
from tunefarm_app.report.page import content_security_policy, page_name, report_page
from tunefarm_app.storage.rows import grouped
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.values import Artifact
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.search.task_groups import counting

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])

_WORKED_OUT = {"outcomes", "flops", "roofline", "counts", "share", "disturbed"}
SourceKind = Literal["schedule", "llvm", "asm", "cuda"]
ARTIFACT_MEDIA_TYPE = "application/vnd.tunefarm.artifact"


@router.get("/tasks", **operation("read", "List a job's tuning tasks", 404))
def list_job_tasks(job_id: JobId, services: ServicesDep) -> Page[JobTask]:
    """With the number of trials by outcome. Empty until the tasks are extracted. Never split into parts."""
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        tasks = repos.jobs.tasks(job_id)
        outcomes = repos.trials.outcomes(job_id)
        model_tasks = repos.models.tasks(job.model_id)
        artifact = repos.artifacts.for_job(job_id)
        report = artifact.report if artifact else {}
        rooflines = job_rooflines(repos, job, tasks, model_tasks, report)
    evidence = Evidence({}, report)
    numbers = kernel_numbers(tasks, evidence)
    shares = time_shares(tasks, numbers, evidence.latency())
    flops = {(task.workload_key, task.toolchain): task.flops for task in model_tasks}
    counts = counting([grouped(task, task.best_cost_sec) for task in tasks])
    items = [
        JobTask(
            **{name: getattr(task, name) for name in JobTask.model_fields if name not in _WORKED_OUT},
            outcomes=outcomes.get(task.position, {}),
            counts=counted,
            share=shares[task.position],
            disturbed=numbers[task.position].is_disturbed,
            flops=flops.get((task.workload_key, task.toolchain)),
            roofline=Roofline.model_validate(rooflines[task.position])
            if task.position in rooflines
            else None,
        )
        for task, counted in zip(tasks, counts, strict=True)
    ]
    return Page[JobTask](items=items, next_cursor=None)


@router.get("/trials", **operation("read", "List a job's trials", 404))
def list_trials(
    job_id: JobId,
    services: ServicesDep,
    position: Annotated[int | None, Query(ge=0, lt=1 << 31, description="Only trials of this task.")] = None,
    outcome: Annotated[Outcome | None, Query(description="Only trials of this outcome.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Trial]:
    """In order of creation, including failed ones."""
    with services.uow.read() as repos:
        repos.jobs.get(job_id)
        page = repos.trials.page(job_id, position=position, outcome=outcome, cursor=cursor, limit=limit)
    return Page[Trial].model_validate(page)


@router.get("/records", **operation("read", "List the records of a job", 404))
def list_job_records(
    job_id: JobId,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("rec")] = None,
) -> Page[Record]:
    """The records that the job added to the farm's history, newest first."""
    with services.uow.read() as repos:
        repos.jobs.get(job_id)
        page = repos.records.query(RecordFilter(job_id=job_id), cursor=cursor, limit=limit)
        return record_page_out(repos, page)


@router.get(
    "/records.jsonl",
    response_class=StreamingResponse,
    **operation(
        "read",
        "Download the records of a job",
        404,
        answers={
            200: {
                "description": "One record a line, newest first, failures included.",
                "content": {JSON_LINES: {"schema": {"type": "string"}}},
            }
        },
    ),
)
def download_job_records(job_id: JobId, request: Request, services: ServicesDep) -> StreamingResponse:
    """The records in the engine's format, for `load_records` and `apply_history_best`."""
    answer = job_records(services, job_id)
    note_download(request, job_id, "records")
    return answer


@router.get("/events", **operation("read", "List a job's events", 404))
def list_events(
    job_id: JobId,
    services: ServicesDep,
    after: Annotated[int, Query(ge=0, lt=1 << 31, description="Only events above this number.")] = 0,
    limit: Limit = 500,
) -> Page[Event]:
    """Oldest first. Poll with the number of the last event seen; `next_cursor` is the `after` of the next part."""
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        events = repos.events.after(job_id, after, limit=limit)
    more = bool(events) and events[-1].seq < job.event_seq
    return Page[Event](
        items=[Event.model_validate(event) for event in events],
        next_cursor=str(events[-1].seq) if more else None,
    )


@router.get("/trace", **operation("read", "Get a job's trace", 404))
def get_trace(job_id: JobId, services: ServicesDep) -> dict[str, Any]:
    """Where every second went, from the upload to the artifact, as a Chrome trace for `chrome://tracing` and Perfetto.

    `otherData.seconds` has the sum of seconds by activity; each moment counts once. For a running job, it ends now.
    """
    with services.uow.read() as repos:
        return job_trace(repos, repos.jobs.get(job_id)).to_chrome()


@router.get(
    "/artifact",
    response_class=FileResponse,
    **operation(
        "read",
        "Download the artifact",
        400,
        404,
        409,
        416,
        answers={
            200: {
                "description": "The packed file.",
                "content": {ARTIFACT_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
            },
            206: {"description": "The part that `Range` asked for."},
            304: {"description": "It matches `If-None-Match`."},
        },
    ),
)
def download_artifact(
    request: Request,
    job_id: JobId,
    services: ServicesDep,
    so_far: Annotated[
        bool,
        Query(
            description="If the job has no artifact, send the artifact so far: the job's `draft`. A newer draft may replace it: a "
            "`Range` needs `If-Range`."
        ),
    ] = False,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The `ETag` is the file's SHA-256. Ranges are supported."""
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        artifact = best_so_far(repos, job) if so_far else artifact_of(repos, job)
    check_signed(services.settings, artifact)
    etag = f'"{artifact.sha256}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and etag in [tag.strip() for tag in if_none_match.split(",")]:
        return Response(status_code=304, headers=headers)
    file = open_artifact(services, artifact)
    note_download(request, job_id, "artifact" if isinstance(artifact, Artifact) else "draft")
    request.scope["method"] = method_of(request.scope)  # for a HEAD the file is not read
    return Download(
        file,
        media_type=ARTIFACT_MEDIA_TYPE,
        filename=artifact.name,
        headers=headers,
    )


@router.get(
    "/artifact.intoto.jsonl",
    response_class=PlainTextResponse,
    **operation(
        "read",
        "Download the artifact's signed statement",
        404,
        409,
        answers={
            200: {
                "description": "A DSSE envelope as one line of JSON. Its payload is a statement of in-toto (v1) with SLSA's provenance (v1).",
                "content": {JSON_LINES: {"schema": {"type": "string"}}},
            }
        },
    ),
)
def download_envelope(
    job_id: JobId,
    services: ServicesDep,
    so_far: Annotated[bool, Query(description="As of `artifact`.")] = False,
    sha256: Annotated[
        str | None,
        Query(
            pattern="^[0-9a-f]{64}$",
            description="The `ETag` of the signed file: if the job's file has changed, the problem is `artifact-replaced`.",
        ),
    ] = None,
) -> Response:
    """Who compiled the artifact, from which model, with which versions and records, on which devices. `/v1/signing-keys` has the keys.

    Keep it beside the artifact, as `NAME.tunefarm.intoto.jsonl`.
    """
    with services.uow.read() as repos:
        name, envelope = signed_statement(repos, repos.jobs.get(job_id), so_far=so_far, sha256=sha256)
    return PlainTextResponse(
        envelope,
        media_type=JSON_LINES,
        headers={
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(name)}.intoto.jsonl",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-cache",
        },
    )


@router.post("/measure", status_code=202, **operation("write", "Measure an artifact again", 404, 409, 410))
def measure(job_id: JobId, services: ServicesDep, body: MeasureIn | None = None) -> Measurements:
    """Times the artifact on a device of its pool, as soon as one is free, beside its untuned network and other runtimes.

    These are ONNX Runtime, those of the job, and those that the body names.

    Read `measurements` until `state` is no longer `waiting` or `measuring`. If a measurement is running already, it is returned.
    The latest measurement on a quiet device is what report, pages and lists show, unless it timed fewer networks than the shown one.
    """
    return Measurements.model_validate(
        measure_again(services, job_id, baselines=body.baselines if body else ())
    )


@router.get("/measurements", **operation("read", "List an artifact's measurements", 404))
def list_measurements(job_id: JobId, services: ServicesDep) -> Measurements:
    """Measurements of the whole network, oldest first: that of the compile, and the newest 20. Empty without an artifact."""
    with services.uow.read() as repos:
        return Measurements.model_validate(measuring_of(repos, job_id))


@router.get("/report", **operation("read", "Get the report", 404, 409))
def get_report(job_id: JobId, services: ServicesDep) -> JobReport:
    """Latencies, kernels, checks, coverage and methods of an ended job, including failed and cancelled ones.

    Before the job's end, the response is the problem `not-finished`.
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
        answers={200: {"description": "The page: one self-contained file."}},
    ),
)
def get_report_page(job_id: JobId, services: ServicesDep) -> Response:
    """The report as one self-contained HTML file without scripts. The `ETag` is its SHA-256."""
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


@router.get(
    "/tasks/{position}/source",
    response_class=PlainTextResponse,
    **operation(
        "read",
        "Get a kernel's source",
        404,
        409,
        answers={
            200: {"description": "The source as UTF-8 text without control characters."},
            304: {"description": "It matches `If-None-Match`."},
        },
    ),
)
def get_kernel_source(
    job_id: JobId,
    position: Annotated[int, PathParameter(ge=0, lt=1 << 31, description="The task.")],
    services: ServicesDep,
    kind: Annotated[
        SourceKind,
        Query(
            description="`schedule`: scheduled TensorIR, as TVMScript. For CPUs `llvm`: LLVM IR, `asm`: assembly. For "
            "GPUs `cuda`: CUDA C."
        ),
    ] = "schedule",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Returns the source of the best config: the one in the artifact, else the best recorded so far.

    A worker generates it at the first request, within seconds; until then the response is the problem
    `source-being-made`: ask again. It needs no device, and the job may be in any state. `no-kernel`: no config has
    worked yet. `source-not-made`: it cannot be generated; the problem's `reason` and `detail` say why, for example
    `other-toolchain` if the workers' compiler differs from the record's.
    """
    return source_response(services, job_id, position, kind, if_none_match=if_none_match, attached=False)
