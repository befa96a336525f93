"""``/v1/audit``: who did what. Needs the scope ``admin``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from tunefarm_api.dependencies import ServicesDep, note_download, operation
from tunefarm_api.schemas.audit import AuditCheck, AuditEntry, AuditPrune, AuditPruned
from tunefarm_api.schemas.base import Limit, Page
from tunefarm_api.transfer.json_lines import MEDIA_TYPE as JSON_LINES
from tunefarm_api.transfer.json_lines import json_lines
from tunefarm_app.access.audit import all_entries, sealed_as_far_as_possible
from tunefarm_app.access.audit_pruning import prune_audit
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import AuditAction
from tunefarm_text.audit_chain import parse_head
from tunefarm_tuning.core.errors import InvalidInputError

router = APIRouter(prefix="/v1", tags=["audit"])

_Id = Annotated[str | None, Query(max_length=100)]
Seq = Annotated[int, Query(ge=0, lt=1 << 31)]


@router.get("/audit", **operation("admin", "List the audit log"))
def list_audit(
    services: ServicesDep,
    actor: Annotated[_Id, Query(description="Only what this API key did.")] = None,
    action: Annotated[AuditAction | None, Query(description="Only this.")] = None,
    subject: Annotated[
        _Id, Query(description="Only what was done to this: the id of a key, model, job, device, …")
    ] = None,
    limit: Limit = 50,
    cursor: Annotated[
        Seq | None, Query(description="`next_cursor` of the previous part; omit it for the first.")
    ] = None,
) -> Page[AuditEntry]:
    """Newest first. Changes are in the log within a second, downloads within two, refusals within a minute."""
    sealed_as_far_as_possible(services)
    with services.uow.read() as repos:
        page = repos.audit.page(
            actor=actor and repos.references.find("key", actor),
            action=action,
            subject=subject and repos.references.subject(subject),
            before=cursor,
            limit=limit,
        )
    return Page[AuditEntry].model_validate(page)


@router.get(
    "/audit.jsonl",
    response_class=StreamingResponse,
    **operation(
        "admin",
        "Export the audit log",
        answers={
            200: {
                "description": "One entry a line, oldest first.",
                "content": {JSON_LINES: {"schema": {"type": "string"}}},
            }
        },
    ),
)
def export_audit(
    request: Request,
    services: ServicesDep,
    after: Annotated[Seq, Query(description="Only entries after this number.")] = 0,
) -> StreamingResponse:
    """The log as JSON lines. `tunefarm audit verify FILE` checks its chain without the server."""
    note_download(request, None, "audit log")
    sealed_as_far_as_possible(services)
    return json_lines(_lines(services, after), "audit.jsonl")


def _lines(services: Services, after: int) -> Iterator[str]:
    for entry in all_entries(services, after):
        yield json.dumps(asdict(entry), separators=(",", ":")) + "\n"


@router.post("/audit/prune", **operation("admin", "Prune the audit log", 409))
def prune(body: AuditPrune, services: ServicesDep) -> AuditPruned:
    """Deletes all entries up to one, which must be older than 30 days. Export them first.

    A new entry, `audit-pruned`, says how many were deleted, and the hash of the last of them, so that the remaining entries can still be verified.
    """
    return AuditPruned(count=prune_audit(services, body.to, body.hash))


@router.get("/audit/check", **operation("admin", "Check the audit log", 429))
def check_audit(
    request: Request,
    head: Annotated[
        str | None,
        Query(
            max_length=100,
            description="`SEQ:HASH` of an earlier check, which the log must still have: entries that were cut off are noticed.",
        ),
    ] = None,
) -> AuditCheck:
    """Reads the whole log and checks its chain of hashes. `broken` names the first wrong entry. Only one check runs at a time."""
    noted = None if head is None else parse_head(head)
    if head is not None and noted is None:
        raise InvalidInputError(
            "head must be SEQ:HASH, as a check shows it", code="invalid-input", field="head"
        )
    return AuditCheck.model_validate(request.app.state.auditor.check(noted))
