"""Records: the best that is known of every kernel, and how it came to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.schemas.base import cursor_of
from tunefarm_api.web.rendering import page
from tunefarm_api.web.schedule import schedule_lines
from tunefarm_api.web.sparkline import fall
from tunefarm_api.web.task_view import shapes_text
from tunefarm_app.composition import Services
from tunefarm_app.task_rows import engine_record
from tunefarm_db.repositories.records import RecordFilter
from tunefarm_db.repositories.searches import KnownWorkload
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Record
from tunefarm_tuning.errors import NotFoundError

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 25
_MOST_WORKLOADS = 50
_EXPORT_PART = 500

_Text = Annotated[str, Query(max_length=2000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLine:
    """One record, with what is known of its workload."""

    record: Record
    name: str
    shapes: str
    flops: float


@router.get("/records", dependencies=[needs("read")])
def records_page(
    request: Request,
    services: ServicesDep,
    kernel: _Text = "",
    target: _Text = "",
    device: _Text = "",
    cursor: Annotated[str | None, cursor_of("rec")] = None,
) -> HTMLResponse:
    """The best of every workload, target, device model and toolchain."""
    wanted = RecordFilter(target_key=target or None, device_model=device or None)
    with services.uow.read() as repos:
        if kernel.strip():
            found, next_cursor = _of_kernels(repos, kernel.strip(), wanted), None
        else:
            part = repos.records.best_page(wanted, cursor=cursor, limit=PAGE_SIZE)
            found, next_cursor = list(part.items), part.next_cursor
        lines = _lines(repos, found)
        targets, models = repos.searches.targets(), repos.searches.device_models()
    asked = {"kernel": kernel.strip(), "target": target, "device": device}
    query = urlencode({name: value for name, value in asked.items() if value})
    return page(
        "records.html",
        request,
        lines=lines,
        asked=asked,
        query=query,
        targets=targets,
        models=models,
        cursor=cursor,
        next_cursor=next_cursor,
    )


@router.get("/records/export", dependencies=[needs("read")])
def export_records(services: ServicesDep, target: _Text = "", device: _Text = "") -> StreamingResponse:
    """The same as JSON lines, for `apply_history_best` and `load_records`."""
    wanted = RecordFilter(target_key=target or None, device_model=device or None)
    return StreamingResponse(
        _exported(services, wanted),
        media_type="application/jsonl",
        headers={"Content-Disposition": 'attachment; filename="records.jsonl"'},
    )


@router.get("/records/{record_id}", dependencies=[needs("read")])
def record_page(record_id: str, request: Request, services: ServicesDep) -> HTMLResponse:
    with services.uow.read() as repos:
        record = repos.searches.record(record_id)
        if record is None:
            raise NotFoundError("there is no such record", code="record-not-found")
        (line,) = _lines(repos, [record])
        place = {
            "target_key": record.target_key,
            "device_model": record.device_model,
            "toolchain": record.toolchain,
        }
        top = repos.records.top(record.workload_key, **place, limit=10)
        falls = repos.searches.best_over_time(record)
        space = repos.spaces.get(
            record.workload_key, target_key=record.target_key, toolchain=record.toolchain
        )
    return page(
        "record.html",
        request,
        line=line,
        record=record,
        top=top,
        falls=falls,
        curve=fall(falls),
        knobs=schedule_lines(record.config, space, record.space_key),
    )


def _of_kernels(repos: Repositories, text: str, wanted: RecordFilter) -> list[Record]:
    found: list[Record] = []
    for key in repos.searches.workloads_like(text, limit=_MOST_WORKLOADS):
        one = RecordFilter(workload_key=key, target_key=wanted.target_key, device_model=wanted.device_model)
        found += repos.records.best_page(one, limit=PAGE_SIZE).items
    return found


def _lines(repos: Repositories, records: Sequence[Record]) -> list[RecordLine]:
    known = repos.searches.known([(one.workload_key, one.toolchain) for one in records])
    return [_line(one, known.get((one.workload_key, one.toolchain))) for one in records]


def _line(record: Record, workload: KnownWorkload | None) -> RecordLine:
    return RecordLine(
        record=record,
        name=workload.name if workload else record.workload_key[:12],
        shapes=shapes_text(workload.args) if workload else "",
        flops=workload.flops if workload else 0.0,
    )


def _exported(services: Services, wanted: RecordFilter) -> Iterator[str]:
    cursor: str | None = None
    while True:
        # A transaction per part: a slow reader holds none.
        with services.uow.read() as repos:
            part = repos.records.best_page(wanted, cursor=cursor, limit=_EXPORT_PART)
        for record in part.items:
            yield engine_record(record).to_json() + "\n"
        cursor = part.next_cursor
        if cursor is None:
            return
