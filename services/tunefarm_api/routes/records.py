"""``/v1/records`` and ``/v1/workloads``: the farm's tuning records."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from tunefarm_api.auth import key_of
from tunefarm_api.dependencies import ServicesDep, operation
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.model import Workload, WorkloadCode
from tunefarm_api.schemas.record import PurgedRecords, Record, RecordImport, RecordPurge
from tunefarm_api.transfer.upload import receive_records
from tunefarm_api.views import record_page_out
from tunefarm_app.records.purging import purge_imports, purge_records
from tunefarm_app.records.search import RecordSearch, find_best, find_records, parse_shape
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_tuning.core.errors import NotFoundError
from tunefarm_tuning.core.outcome import Outcome

router = APIRouter(prefix="/v1", tags=["records"])

_Name = Annotated[str | None, Query(max_length=200)]
_Text = Annotated[str | None, Query(max_length=2000)]


@router.get("/records", **operation("read", "Search records"))
def list_records(
    services: ServicesDep,
    workload_key: Annotated[_Text, Query(description="Only records of this computation.")] = None,
    target_key: Annotated[_Text, Query(description="Only records for this target.")] = None,
    device_model: Annotated[_Text, Query(description="Only records of this device model.")] = None,
    toolchain: Annotated[_Text, Query(description="Only records by this compiler version.")] = None,
    operator: Annotated[_Name, Query(description="Only records of kernels whose name contains this.")] = None,
    shape: Annotated[
        _Name,
        Query(
            description="Only records of kernels with an argument whose shape contains this (`1x56x56x64`)."
        ),
    ] = None,
    outcome: Annotated[Outcome | None, Query(description="Only records of this outcome.")] = None,
    job_id: Annotated[_Text, Query(description="Only records that this job measured.")] = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("rec")] = None,
) -> Page[Record]:
    """Newest first, including failures."""
    wanted = RecordFilter(
        workload_key=workload_key,
        target_key=target_key,
        device_model=device_model,
        toolchain=toolchain,
        outcome=outcome,
        job_id=job_id,
    )
    with services.uow.read() as repos:
        return record_page_out(
            repos, find_records(repos, _search(wanted, operator, shape), cursor=cursor, limit=limit)
        )


@router.post(
    "/records",
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "Records as JSON lines, as `GET /v1/jobs/{job_id}/records.jsonl` gives them.",
            "content": {"application/jsonl": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
    **operation("write", "Import records", 408, 413, 415, 507),
)
async def add_records(
    request: Request,
    services: ServicesDep,
    keep_unknown: Annotated[
        bool, Query(description="Whether to add records of workloads that no model of the farm has.")
    ] = False,
) -> RecordImport:
    """Adds records of another farm, of the library or of TVM's own search to the history.

    All lines are read first: if a line is not a record, no record is added. A record that the farm has is left out, so an import
    can be repeated.
    """
    return RecordImport.model_validate(await receive_records(request, services, keep_unknown=keep_unknown))


@router.post("/records/purge", **operation("admin", "Purge records", 404))
def purge_untrusted_records(body: RecordPurge, request: Request, services: ServicesDep) -> PurgedRecords:
    """Deletes the records that a device measured (all, or only those of one certificate or ticket), and what compiles found out there; or the records alone that a key imported. Artifacts stay; `used_by` names their jobs."""
    by_key_id = key_of(request).id
    with services.uow.read() as repos:
        key_id = body.key_id and repos.references.find("key", body.key_id)
        device_id = body.device_id and repos.references.find("device", body.device_id)
    if key_id is not None:
        return PurgedRecords.model_validate(purge_imports(services, key_id, by_key_id=by_key_id))
    purged = purge_records(
        services,
        str(device_id),
        certificate_sha256=body.certificate_sha256,
        ticket_jti=body.ticket_jti,
        by_key_id=by_key_id,
    )
    return PurgedRecords.model_validate(purged)


@router.get("/records/best", **operation("read", "List the best records"))
def list_best_records(
    services: ServicesDep,
    workload_key: Annotated[_Text, Query(description="Only records of this computation.")] = None,
    target_key: Annotated[_Text, Query(description="Only records for this target.")] = None,
    device_model: Annotated[_Text, Query(description="Only records of this device model.")] = None,
    toolchain: Annotated[_Text, Query(description="Only records by this compiler version.")] = None,
    operator: Annotated[_Name, Query(description="Only records of kernels whose name contains this.")] = None,
    shape: Annotated[
        _Name,
        Query(
            description="Only records of kernels with an argument whose shape contains this (`1x56x56x64`)."
        ),
    ] = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("rec")] = None,
) -> Page[Record]:
    """The fastest record of every workload, target, device model and toolchain, in this order.

    A confirmed config counts with its newest confirmation.
    """
    wanted = RecordFilter(
        workload_key=workload_key, target_key=target_key, device_model=device_model, toolchain=toolchain
    )
    with services.uow.read() as repos:
        return record_page_out(
            repos, find_best(repos, _search(wanted, operator, shape), cursor=cursor, limit=limit)
        )


@router.get("/workloads/{workload_key}", **operation("read", "Get a workload", 404))
def get_workload(workload_key: str, services: ServicesDep) -> Page[Workload]:
    """One item per compiler version that extracted it. Never split into parts."""
    with services.uow.read() as repos:
        toolchains = repos.workloads.toolchains([workload_key]).get(workload_key, [])
        workloads = [repos.workloads.get(workload_key, toolchain) for toolchain in toolchains]
    if not workloads:
        raise NotFoundError("there is no such workload", code="workload-not-found")
    return Page[Workload](items=[Workload.model_validate(w) for w in workloads], next_cursor=None)


@router.get("/workloads/{workload_key}/code", **operation("read", "Get a workload's code", 404))
def get_workload_code(
    workload_key: str,
    services: ServicesDep,
    toolchain: Annotated[str, Query(max_length=200, description="Compiler version that extracted it.")],
) -> WorkloadCode:
    """The kernel's computation, which that version of TVM reads: about 100 kB."""
    with services.uow.read() as repos:
        return WorkloadCode.model_validate(repos.workloads.get(workload_key, toolchain))


def _search(wanted: RecordFilter, operator: str | None, shape: str | None) -> RecordSearch:
    return RecordSearch(filter=wanted, operator=(operator or "").strip(), shape=parse_shape(shape or ""))
