"""A job's log as a file: the text that the page shows, or the events as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.transfer.json_lines import json_lines
from tunefarm_api.web.jobs.log_lines import log_line
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Event
from tunefarm_text import quantities
from tunefarm_tuning.core.untrusted_text import clean

router = APIRouter(include_in_schema=False)

_PART = 500
_LINE_CHARACTERS = 10_000


@router.get("/jobs/{job_id}/log.txt", dependencies=[needs("read")])
def log_text(job_id: str, services: ServicesDep) -> StreamingResponse:
    """A line per event, oldest first; times are in UTC."""
    return StreamingResponse(
        _lines(services, job_id, _text),
        media_type="text/plain; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{_known(services, job_id)}.log"',
            "X-Content-Type-Options": "nosniff",
        },
    )


@router.get("/jobs/{job_id}/log.jsonl", dependencies=[needs("read")])
def log_json(job_id: str, services: ServicesDep) -> StreamingResponse:
    """The events as the API has them, one a line."""
    return json_lines(_lines(services, job_id, _json), f"{_known(services, job_id)}-log.jsonl")


def _known(services: Services, job_id: str) -> str:
    """Return the job's id, if there is such a job: a stream that has begun cannot say that there is none."""
    with services.uow.read() as repos:
        return repos.jobs.get(job_id).id


def _lines(services: Services, job_id: str, write: Callable[[Event], str]) -> Iterator[str]:
    after = 0
    while True:
        with services.uow.read() as repos:
            events = repos.events.after(job_id, after, limit=_PART)
        yield "".join(write(event) for event in events)
        if len(events) < _PART:
            return
        after = events[-1].seq


def _text(event: Event) -> str:
    line = log_line(event)
    return (
        f"{line.seq:>5}  {quantities.utc(line.at)}  {line.kind:<13}  {clean(line.text, _LINE_CHARACTERS)}\n"
    )


def _json(event: Event) -> str:
    members = {name: value for name, value in asdict(event).items() if name != "job_id"}
    return json.dumps(members, separators=(",", ":")) + "\n"
