"""``client.audit``: read, export and check the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from tunefarm.client.filters import PAGE_OF_ALL, AuditFilters, filter_query, takes_filters
from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import Page, get_page, walk
from tunefarm.client.http.transport import Resource
from tunefarm.client.results.reading import Answer, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Answer):
    """An entry of the audit log.

    Attributes:
        seq: Its number; none is left out.
        at: Time of the action, Unix seconds.
        actor: Id of the API key that acted; None for the farm itself, or a stranger.
        via: ``api``, ``browser`` or ``farm``.
        address: Address that the request came from; empty if there was none.
        action: What was done, for example ``key-created``.
        subject: Id of what it was done to.
        hash: Hash of this entry and the one before.
    """

    seq: int
    at: float = 0.0
    actor: str | None = None
    via: str = ""
    address: str = ""
    action: str = ""
    subject: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditBreak(Result):
    """The first entry that is not right, and why."""

    seq: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck(Answer):
    """A check of the audit log: number and hash of its last right entry, and where it is broken, if it is.

    Attributes:
        pruned: How many entries were pruned at its begin, as an entry of the log says.
        waiting: How many entries are not in the chain yet.
        waiting_since: Time of the oldest of them, Unix seconds; None if there is none.
    """

    seq: int
    hash: str = ""
    pruned: int = 0
    broken: AuditBreak | None = None
    waiting: int = 0
    waiting_since: float | None = None


class AsyncAudit(Resource):
    """The server's audit log. Needs a key with the scope ``admin``."""

    @takes_filters(AuditFilters)
    async def list(
        self, *, limit: int = 100, cursor: str | None = None, **filters: Unpack[AuditFilters]
    ) -> Page[AuditEntry]:
        """Return a page of the log, newest first.

        Args:
            **filters
            limit: Maximum number of items.
            cursor: `Page.next_cursor` of the previous page.
        """
        query = {**filter_query(filters, AuditFilters), "limit": limit, "cursor": cursor}
        return await get_page(self._transport, "audit", query, AuditEntry.read)

    @takes_filters(AuditFilters)
    def all(self, **filters: Unpack[AuditFilters]) -> AsyncIterator[AuditEntry]:
        """Yield every entry that matches all filters, newest first, page by page.

        Args:
            **filters
        """
        query = {**filter_query(filters, AuditFilters), "limit": PAGE_OF_ALL}
        return walk(self._transport, "audit", query, AuditEntry.read)

    async def export(self, file: Path | str, *, after: int = 0) -> Path:
        """Write the log as JSON lines, oldest first, and return the file's path.

        Args:
            file: The file to write; an existing one is replaced.
            after: Only entries after this number.
        """
        path = Path(file)
        await self._transport.download("audit.jsonl", path, None, {"after": after})
        return path

    async def check(self, *, head: str | None = None) -> AuditCheck:
        """Let the server check the log's chain of hashes.

        Args:
            head: ``SEQ:HASH`` of an earlier check, which the log must still have.

        Raises:
            InvalidRequestError: ``invalid-input`` if `head` is none.
        """
        return AuditCheck.read(await self._transport.get("audit/check", {"head": head}))

    async def prune(self, to: int, digest: str) -> int:
        """Delete all entries up to one; return how many. `export` them before.

        Args:
            to: The number of the last entry to delete, which must be older than 30 days.
            digest: Its hash, as in an export.

        Raises:
            InvalidRequestError: ``audit-too-young``.
            ConflictError: ``audit-head-differs`` if the log has no such entry.
        """
        answer = await self._transport.post("audit/prune", {"to": to, "hash": digest})
        return int(answer["count"])


class Audit(Blocking[AsyncAudit]):
    """The server's audit log. Needs a key with the scope ``admin``."""

    list = blocking(AsyncAudit.list)
    all = blocking_each(AsyncAudit.all)
    export = blocking(AsyncAudit.export)
    check = blocking(AsyncAudit.check)
    prune = blocking(AsyncAudit.prune)
