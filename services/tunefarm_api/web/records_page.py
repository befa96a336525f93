"""The list of best records, and the page of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep, note_download
from tunefarm_api.schemas.base import cursor_of
from tunefarm_api.transfer.json_lines import job_records, json_lines, record_lines
from tunefarm_api.web.charts.sparkline import fall
from tunefarm_api.web.gpu_code import gpu_code_text
from tunefarm_api.web.jobs.schedule import schedule_lines
from tunefarm_api.web.jobs.task_view import shapes_text
from tunefarm_api.web.rendering import page
from tunefarm_app.records.search import RecordSearch, find_best, parse_shape
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.repositories.records.searches import KnownWorkload
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Page, Record
from tunefarm_tuning.core.errors import NotFoundError

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 25

_Text = Annotated[str, Query(max_length=2000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the form of the page asks for; empty for any."""

    kernel: str
    shape: str
    target: str
    device: str

    def search(self) -> RecordSearch:
        """Raises `InvalidInputError` if the shape is none."""
        return RecordSearch(
            filter=RecordFilter(target_key=self.target or None, device_model=self.device or None),
            operator=self.kernel,
            shape=parse_shape(self.shape),
        )

    def query(self) -> str:
        """Return it as the query of a URL."""
        return urlencode({name: value for name, value in asdict(self).items() if value})


def _asked(kernel: _Text = "", shape: _Text = "", target: _Text = "", device: _Text = "") -> Asked:
    return Asked(kernel=kernel.strip(), shape=shape.strip(), target=target, device=device)


AskedDep = Annotated[Asked, Depends(_asked)]


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
    query: AskedDep,
    cursor: Annotated[str | None, cursor_of("rec")] = None,
) -> HTMLResponse:
    """The best of every workload, target, device model and toolchain."""
    search = query.search()
    with services.uow.read() as repos:
        part = find_best(repos, search, cursor=cursor, limit=PAGE_SIZE)
        lines = _lines(repos, part.items)
        targets, models = repos.searches.targets(), repos.searches.device_models()
    return page(
        "records.html",
        request,
        lines=lines,
        asked=query,
        query=query.query(),
        targets=targets,
        models=models,
        cursor=cursor,
        next_cursor=part.next_cursor,
    )


@router.get("/records/export", dependencies=[needs("read")])
def export_records(request: Request, services: ServicesDep, query: AskedDep) -> StreamingResponse:
    """The same as JSON lines, for `apply_history_best` and `load_records`."""
    search = query.search()
    note_download(request, None, "best records")

    def read(repos: Repositories, cursor: str | None, limit: int) -> Page[Record]:
        return find_best(repos, search, cursor=cursor, limit=limit)

    return json_lines(record_lines(services, read), "records.jsonl")


@router.get("/jobs/{job_id}/records.jsonl", dependencies=[needs("read")])
def export_job_records(job_id: str, request: Request, services: ServicesDep) -> StreamingResponse:
    """Send a job's records as JSON lines."""
    answer = job_records(services, job_id)
    note_download(request, job_id, "records")
    return answer


@router.get("/records/{record_id}", dependencies=[needs("read")])
def record_page(record_id: str, request: Request, services: ServicesDep) -> HTMLResponse:
    """A record's page."""
    with services.uow.read() as repos:
        record = repos.searches.record(record_id)
        if record is None:
            raise NotFoundError("there is no such record", code="record-not-found")
        (line,) = _lines(repos, [record])
        conditions = {
            "target_key": record.target_key,
            "device_model": record.device_model,
            "toolchain": record.toolchain,
        }
        top = repos.records.top(record.workload_key, **conditions, limit=10)
        falls = repos.searches.best_over_time(record)
        space = repos.spaces.get(
            record.workload_key, target_key=record.target_key, toolchain=record.toolchain
        )
    return page(
        "record.html",
        request,
        line=line,
        record=record,
        gpu_code=gpu_code_text(record.extra),
        top=top,
        falls=falls,
        curve=fall(falls),
        knobs=schedule_lines(record.config, space, record.space_key),
        space_is_gone=space is not None and space.space_key != record.space_key,
    )


def _lines(repos: Repositories, records: Sequence[Record]) -> list[RecordLine]:
    known = repos.searches.known([(record.workload_key, record.toolchain) for record in records])
    return [_line(record, known.get((record.workload_key, record.toolchain))) for record in records]


def _line(record: Record, workload: KnownWorkload | None) -> RecordLine:
    return RecordLine(
        record=record,
        name=workload.name if workload else record.workload_key[:12],
        shapes=shapes_text(workload.args) if workload else "",
        flops=workload.flops if workload else 0.0,
    )
