"""The page of the audit log: who did what. It needs the scope ``admin``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.routes.audit import Seq, export_audit
from tunefarm_api.web.rendering import page
from tunefarm_app.access.audit import sealed_as_far_as_possible, waiting_entries
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, AuditEntry

router = APIRouter(include_in_schema=False, dependencies=[needs("admin")])

_PAGES = {"mdl": "/models/", "job": "/jobs/", "dev": "/devices/", "swp": "/sweeps/", "whk": "/webhooks/"}
"""Prefixes of ids that have a page."""

_Text = Annotated[str, Query(max_length=100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """An entry as the page shows it.

    Attributes:
        who: The key's name; empty if there was none.
        link: The page of its subject; empty if it has none.
        more: Its details, in one line.
    """

    entry: AuditEntry
    who: str
    link: str
    more: str


@router.get("/audit")
def audit_page(
    request: Request,
    services: ServicesDep,
    actor: _Text = "",
    action: _Text = "",
    subject: _Text = "",
    cursor: Seq | None = None,
    check: bool = False,
) -> HTMLResponse:
    """The audit log, newest first; with `check`, what a check of its chain says."""
    sealed_as_far_as_possible(services)
    asked = AuditAction(action) if action in set(AuditAction) else None
    with services.uow.read() as repos:
        part = repos.audit.page(
            actor=actor.strip() or None, action=asked, subject=subject.strip() or None, before=cursor
        )
        lines = _lines(repos, part.items)
    filters = {"actor": actor, "action": action, "subject": subject}
    older = "" if part.next_cursor is None else urlencode({**filters, "cursor": part.next_cursor})
    return page(
        "audit.html",
        request,
        lines=lines,
        filters=filters,
        actions=list(AuditAction),
        older=older,
        checked=request.app.state.auditor.check() if check else None,
        waiting=waiting_entries(services),
    )


@router.get("/audit/export")
def export(request: Request, services: ServicesDep) -> StreamingResponse:
    """The whole log as JSON lines."""
    return export_audit(request, services)


def _lines(repos: Repositories, entries: Sequence[AuditEntry]) -> list[AuditLine]:
    names = {
        key.id: key.name
        for actor in {entry.actor for entry in entries}
        if (key := repos.api_keys.find(actor or ""))
    }
    return [
        AuditLine(
            entry=entry,
            who=names.get(entry.actor or "", ""),
            link=_link(entry.subject or ""),
            more=", ".join(
                f"{name.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value)}"
                for name, value in entry.details.items()
            ),
        )
        for entry in entries
    ]


def _link(subject: str) -> str:
    prefix = _PAGES.get(subject.partition("_")[0])
    return "" if prefix is None else prefix + subject
