"""Send long lists as JSON lines. Each part is read in its own transaction, so that a slow client holds none open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fastapi.responses import StreamingResponse

from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.rows import engine_record
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Page, Record
from tunefarm_text.quantities import ascii_kernel_shapes

MEDIA_TYPE = "application/jsonl"
_PART = 500

ReadPart = Callable[[Repositories, str | None, int], Page[Record]]
"""Returns a page of records after a cursor: the third argument is the limit."""


def json_lines(lines: Iterator[str], name: str) -> StreamingResponse:
    """Return the lines as a file to download."""
    return StreamingResponse(
        lines,
        media_type=MEDIA_TYPE,
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


def record_lines(services: Services, read: ReadPart) -> Iterator[str]:
    """Yield records as the engine reads them (`load_records`)."""
    cursor: str | None = None
    while True:
        with services.uow.read() as repos:
            part = read(repos, cursor, _PART)
            known = repos.searches.known([(record.workload_key, record.toolchain) for record in part.items])
        for row in part.items:
            record = engine_record(row)
            if (workload := known.get((row.workload_key, row.toolchain))) is not None:
                record = replace(record, kernel=workload.name, shapes=ascii_kernel_shapes(workload.args))
            yield record.to_json() + "\n"
        cursor = part.next_cursor
        if cursor is None:
            return


def job_records(services: Services, job_id: str) -> StreamingResponse:
    """Return all records that a job added to the farm's history, newest first.

    Raises:
        NotFoundError: If there is no such job.
    """
    with services.uow.read() as repos:
        repos.jobs.get(job_id)

    def read(repos: Repositories, cursor: str | None, limit: int) -> Page[Record]:
        return repos.records.query(RecordFilter(job_id=job_id), cursor=cursor, limit=limit)

    return json_lines(record_lines(services, read), f"{job_id}-records.jsonl")
