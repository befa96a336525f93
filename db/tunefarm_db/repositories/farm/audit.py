"""The audit log: who did what, append-only and chained by hashes.

An entry is written in two steps, so that no writer waits for another. `note` inserts it into the inbox, in the
transaction of what it tells of: both are committed, or neither. `seal` moves entries from the inbox into the log, numbers
them and chains their hashes; it takes turns with itself alone. Triggers of the database refuse to change or delete what is
in the log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import isfinite
from typing import Any

from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.exc import DBAPIError

from tunefarm_db.acting import acting
from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository, checked_limit, equal, is_of_data, page_of
from tunefarm_db.tables import AuditInboxRow, AuditLogRow, table_of
from tunefarm_db.values import AuditAction, AuditEntry, NotedEntry, Page, WaitingEntries
from tunefarm_text.audit_chain import START, chained_hash
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.core.untrusted_text import clean

_INBOX = table_of(AuditInboxRow)
_LOG = table_of(AuditLogRow)
# A row that workers cannot lock (`worker_role`): an advisory lock they could hold, and with it all entries back.
_TURN = text("SELECT 1 FROM alembic_version FOR NO KEY UPDATE SKIP LOCKED")

_MAX_ID = 100
_MAX_ADDRESS = 64
_MAX_DETAIL = 4000


class Audit(Repository):
    """The audit log and its inbox."""

    def note(
        self,
        action: AuditAction,
        subject: str | None = None,
        *,
        actor: str | None = None,
        via: str | None = None,
        address: str | None = None,
        **details: Any,
    ) -> None:
        """Write an entry in this unit of work.

        Args:
            action: What is done.
            subject: The id of what it is done to. Texts are stored clean and cut: no request may write what cannot be sealed.
            actor: The API key that does it; by default that of the request, as are `via` and `address`.
            via: See `Acting`.
            address: See `Acting`.
            **details: More, as JSON; never a secret.
        """
        who = acting()
        row = {
            "id": new_id("aud"),
            "actor": _text(actor or who.key_id, _MAX_ID),
            "via": via or who.via,
            "address": _text(who.address if address is None else address, _MAX_ADDRESS),
            "action": action,
            "subject": _text(subject, _MAX_ID),
            "details": {name: _detail(value) for name, value in details.items() if value is not None},
        }
        self._run(insert(_INBOX), [row])

    def is_sealed(self) -> bool:
        """Return whether the inbox is empty."""
        return self._run(select(AuditInboxRow.id).limit(1)).first() is None

    def waiting(self) -> WaitingEntries:
        """Return how many entries are in the inbox, and since when."""
        count, since = self._run(select(func.count(), func.min(AuditInboxRow.at))).one()
        return WaitingEntries(count=count, since=since)

    def seal(self, limit: int = 1000) -> int:
        """Move the oldest entries of the inbox into the log; return how many.

        Returns 0 at once if another process is doing so. Instead of an entry that the log cannot hold, a stand-in is sealed,
        which says so.
        """
        # SQLite has one writer.
        if self._connection.dialect.name == "postgresql" and self._run(_TURN).first() is None:
            return 0
        noted = self._all(NotedEntry, select(_INBOX).order_by(AuditInboxRow.id).limit(limit))
        if not noted:
            return 0
        if not self._could_append(noted):
            for entry in noted:
                if not self._could_append([entry]):
                    self._append([_stand_in(entry)])
        ids = self._texts([entry.id for entry in noted], "sealed")
        self._run(delete(_INBOX).where(AuditInboxRow.id.in_(select(ids.c.value))))
        return len(noted)

    def _could_append(self, entries: Sequence[NotedEntry]) -> bool:
        """Append all of these to the log, or none; return whether it holds them."""
        try:
            with self._connection.begin_nested():
                self._append(entries)
        except DBAPIError as error:
            if not is_of_data(error):
                raise
            return False
        return True

    def _append(self, entries: Sequence[NotedEntry]) -> None:
        last, previous = self.head()
        rows = []
        for seq, entry in enumerate(entries, start=last + 1):
            row = {**asdict(entry), "action": entry.action.value, "seq": seq}
            del row["id"]
            previous = chained_hash(previous, row)
            rows.append({**row, "action": entry.action, "hash": previous})
        self._run(insert(_LOG), rows)

    def prunable(self, before: float, *, limit: int) -> AuditEntry | None:
        """Return the last entry to prune: of the oldest `limit`, the last of those that are all older than a time; None if none is."""
        oldest = select(_LOG).order_by(AuditLogRow.seq).limit(limit).subquery()
        first_young = select(func.min(AuditLogRow.seq)).where(AuditLogRow.at >= before).scalar_subquery()
        query = select(oldest).where(oldest.c.seq < func.coalesce(first_young, 1 << 62))
        return self._first(AuditEntry, query.order_by(oldest.c.seq.desc()).limit(1))

    def prune(self, to: int, digest: str) -> int | None:
        """Delete the entries up to one, which has this hash, after a new entry of the log that says so; return how many.

        Returns None if another process seals now, and changes nothing then.

        Raises:
            ConflictError: ``audit-head-differs``, if the log has no such entry, or it has another hash.
        """
        entry = self._first(AuditEntry, select(_LOG).where(AuditLogRow.seq == to))
        if entry is None or entry.hash != digest:
            raise ConflictError(
                f"the audit log has no entry {to} with that hash", code="audit-head-differs", seq=to
            )
        count, since, until = self._run(
            select(func.count(), func.min(AuditLogRow.at), func.max(AuditLogRow.at)).where(
                AuditLogRow.seq <= to
            )
        ).one()
        self.note(AuditAction.AUDIT_PRUNED, count=count, to=to, hash=digest, since=since, until=until)
        while not self.is_sealed():
            if not self.seal():
                return None
        return int(self._run(delete(_LOG).where(AuditLogRow.seq <= to)).rowcount)

    def head(self) -> tuple[int, str]:
        """Return the number and hash of the last entry in the log; 0 and `START` of an empty one."""
        newest = select(AuditLogRow.seq, AuditLogRow.hash).order_by(AuditLogRow.seq.desc()).limit(1)
        row = self._run(newest).first()
        return (0, START) if row is None else (row[0], row[1])

    def after(self, seq: int, *, limit: int) -> tuple[AuditEntry, ...]:
        """Return the entries of the log after this number, oldest first."""
        query = select(_LOG).where(AuditLogRow.seq > seq).order_by(AuditLogRow.seq).limit(limit)
        return self._all(AuditEntry, query)

    def page(
        self,
        *,
        actor: str | None = None,
        action: AuditAction | None = None,
        subject: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Page[AuditEntry]:
        """Return a page of the log, newest first; the cursor is the number of its last entry."""
        limit = checked_limit(limit)
        query = select(_LOG).where(*equal(_LOG.c, actor=actor, action=action, subject=subject))
        if before is not None:
            query = query.where(AuditLogRow.seq < before)
        entries = self._all(AuditEntry, query.order_by(AuditLogRow.seq.desc()).limit(limit + 1))
        return page_of(entries, limit, lambda entry: str(entry.seq))


def _text(text: str | None, limit: int) -> str | None:
    return None if text is None else clean(text, limit)


def _detail(value: Any) -> Any:
    """Return a detail as it is stored: its texts clean, and its JSON cut where that is too long."""
    shown = _cleaned(value)
    if isinstance(shown, str) or len(as_text := json.dumps(shown)) <= _MAX_DETAIL:
        return shown
    return clean(as_text, _MAX_DETAIL)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value, _MAX_DETAIL)
    if isinstance(value, dict):
        return {clean(str(name), _MAX_ID): _cleaned(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _stand_in(entry: NotedEntry) -> NotedEntry:
    return replace(
        entry,
        actor=_text(entry.actor, _MAX_ID),
        address=clean(entry.address, _MAX_ADDRESS),
        subject=_text(entry.subject, _MAX_ID),
        details={"not_as_noted": True, "was": clean(json.dumps(entry.details), 500)},
    )
