"""``tunefarm audit``: who did what on the server; export and check of the log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import Limit
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities
from tunefarm_text.audit_chain import ChainBreak, ChainCheck, parse_head
from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError

app = group("audit", "Show, export and check the log of who did what. Needs a key with the scope admin.")


@command(app, "list")
def list_audit(
    out: Output,
    server: Server,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="KEY_ID", help="Only actions of this API key: its id, or a part of it."
        ),
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="ACTION", help="Only this action, like key-created.")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="ID",
            help="Only actions on the key, model, job or device with this id, or with this part of an id.",
        ),
    ] = None,
    limit: Limit = 50,
) -> None:
    """List the audit log, newest first. With --json, one entry a line."""
    with server.connect() as client:
        entries = out.first(client.audit.all(actor=key, action=action, subject=subject), limit)
    out.items(
        entries,
        {
            ">no.": lambda entry: entry.seq,
            "time": lambda entry: quantities.local_time(entry.at),
            "key": lambda entry: entry.actor or quantities.NONE,
            "via": lambda entry: f"{entry.via} {entry.address}".strip(),
            "action": lambda entry: entry.action,
            "of": lambda entry: entry.subject or quantities.NONE,
            "details": lambda entry: json.dumps(dict(entry.details)) if entry.details else "",
        },
        json_lines=True,
    )


@command(app, "export")
def export_audit(
    out: Output,
    server: Server,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; an existing one is replaced.")],
    after: Annotated[
        int, typer.Option("--after", min=0, metavar="NO", help="Only entries after this number.")
    ] = 0,
) -> None:
    """Write the audit log as JSON lines, oldest first."""
    with server.connect() as client:
        path = client.audit.export(file, after=after)
    out.result({"output": str(path)}, str(path))


@command(app, "prune")
def prune_audit(
    out: Output,
    server: Server,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="DATE",
            help="Delete entries from before this day (2026-08-01, UTC), which must be at least 30 days ago.",
        ),
    ],
    export: Annotated[
        Path,
        typer.Option(
            "--export", metavar="FILE", help="First write the log to this new file, and check the file."
        ),
    ],
) -> None:
    """Delete old entries of the audit log, after an export that is checked. What stays can still be verified.

    Keep the file: `tunefarm audit verify FILE` checks it. The log keeps the number and the hash of its last entry.
    """
    try:
        until = datetime.fromisoformat(before).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise InvalidInputError("--before must be a day, like 2026-08-01", code="invalid-input") from error
    if export.exists():
        raise InvalidInputError(f"{export} exists: name a new file", code="invalid-input")
    with server.connect() as client:
        client.audit.export(export)
        check = _checked_file(export, ChainCheck())
        if (broken := check.end()) is not None:
            raise _broken_log(broken, "nothing was deleted")
        last = _last_before(export, until)
        count = 0 if last is None else client.audit.prune(last[0], last[1])
    head = None if last is None else f"{last[0]}:{last[1]}"
    out.result(
        {"count": count, "to": head, "export": str(export)},
        f"no entry is older; the whole log is in {export}"
        if head is None
        else f"{quantities.plural(count, 'entry', 'entries')} deleted, up to {head}; the whole log is in {export}",
    )


@command(app, "verify")
def verify_audit(
    out: Output,
    server: Server,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            dir_okay=False,
            help="Check this exported file instead of the server's log.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="NO:HASH",
            help="The head that an earlier check printed: the log must still have that entry. Without it, a log whose newest entries were "
            "cut off, or that was rewritten from its start, looks correct.",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            metavar="NO:HASH",
            help="The head that an earlier check printed: FILE is an export of the entries after it (export --after NO).",
        ),
    ] = None,
) -> None:
    """Check the audit log's chain of hashes; the exit code is 1 if it is broken, and the message says where."""
    noted, start = _parsed("--head", head), _parsed("--after", after)
    if start is not None and (file is None or (noted is not None and noted[0] <= start[0])):
        raise InvalidInputError(
            "--after needs FILE, a part of the log, and a --head that is later", code="invalid-input"
        )
    checked = _checked_log(server, head) if file is None else _checked_export(file, noted, start)
    if checked.broken is not None:
        raise _broken_log(checked.broken, f"the {checked.correct} entries before it are correct")
    out.result(
        {
            "seq": checked.seq,
            "hash": checked.hash,
            "pruned": checked.pruned,
            "broken": None,
            "waiting": checked.waiting,
        },
        f"all {checked.correct} entries are correct; the head is {checked.seq}:{checked.hash}"
        + (f"; {checked.pruned} earlier entries were pruned" if checked.pruned else "")
        + (f"; {checked.waiting} are not in the log yet" if checked.waiting else ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """A check of the server's log, or of an export.

    Attributes:
        seq: Number of its last correct entry.
        hash: Hash of that entry.
        before: Number of the entry before its first one.
        pruned: How many entries were pruned before its first one; 0 for the export of a part.
        broken: Where it is broken; None if it is correct.
        waiting: How many entries are not in the log yet.
    """

    seq: int
    hash: str
    before: int
    pruned: int
    broken: ChainBreak | None
    waiting: int = 0

    @property
    def correct(self) -> int:
        """How many entries are correct."""
        return max(0, self.seq - self.before)


def _checked_log(server: Server, head: str | None) -> _Checked:
    with server.connect() as client:
        check = client.audit.check(head=head)
    broken = check.broken
    return _Checked(
        seq=check.seq,
        hash=check.hash,
        before=check.pruned,
        pruned=check.pruned,
        broken=None if broken is None else ChainBreak(seq=broken.seq, reason=broken.reason),
        waiting=check.waiting,
    )


def _checked_export(file: Path, head: tuple[int, str] | None, after: tuple[int, str] | None) -> _Checked:
    check = _checked_file(file, ChainCheck(head, after=after))
    broken = check.end()
    return _Checked(
        seq=check.seq,
        hash=check.hash,
        before=check.pruned if after is None else after[0],
        pruned=check.pruned,
        broken=broken,
    )


def _broken_log(broken: ChainBreak, consequence: str) -> TunefarmError:
    return TunefarmError(
        f"the audit log is broken at entry {broken.seq}: {broken.reason}; {consequence}",
        code="audit-broken",
        seq=broken.seq,
        reason=broken.reason,
    )


def _parsed(option: str, head: str | None) -> tuple[int, str] | None:
    parsed = None if head is None else parse_head(head)
    if head is not None and parsed is None:
        raise InvalidInputError(f"{option} must be NO:HASH, as a check prints it", code="invalid-input")
    return parsed


def _last_before(file: Path, until: float) -> tuple[int, str] | None:
    """Return number and hash of the last entry of an export before which all are older than a time; None if there is none."""
    last = None
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if entry["at"] >= until:
                break
            last = (int(entry["seq"]), str(entry["hash"]))
    return last


def _checked_file(file: Path, check: ChainCheck) -> ChainCheck:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                goes_on = check.take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInputError(
                    f"line {number} is not an entry of an audit log", code="invalid-input", line=number
                ) from error
            if not goes_on:
                break
    return check
