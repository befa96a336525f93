"""``tunefarm audit``: who did what on the server; export and check of the log."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities
from tunefarm_text.audit_chain import START, ChainCheck, parse_head
from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError

app = group("audit", "Show, export and check the log of who did what. Needs a key with the scope admin.")


@command(app, "list")
def list_audit(
    out: Output,
    server: Server,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY_ID", help="Only what this API key did.")
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="ACTION", help="Only this, as key-created.")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="ID", help="Only what was done to the key, model, job, device, … of this id."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of entries.")
    ] = 50,
) -> None:
    """List the audit log, newest first. With --json, one entry a line."""
    with server.connect() as client:
        entries = list(islice(client.audit.all(actor=key, action=action, subject=subject), limit))
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
            help="Check this export, here, instead of the server's log.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="NO:HASH",
            help="What an earlier check printed: the log must still have that entry. Without it, a log whose newest entries were "
            "cut off, or that was written anew from its start, looks right.",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            metavar="NO:HASH",
            help="What an earlier check printed: FILE is an export of the entries after that one (export --after NO).",
        ),
    ] = None,
) -> None:
    """Check the audit log's chain of hashes; the exit code is 1 if it is broken, and the message says where."""
    noted, start = _parsed("--head", head), _parsed("--after", after) or (0, START)
    if after is not None and (file is None or (noted is not None and noted[0] <= start[0])):
        raise InvalidInputError(
            "--after needs the FILE of a part of the log, and a later --head", code="invalid-input"
        )
    waiting = 0
    if file is None:
        with server.connect() as client:
            checked = client.audit.check(head=head)
        seq, digest, broken_at = checked.seq, checked.hash, checked.broken
        broken = None if broken_at is None else (broken_at.seq, broken_at.reason)
        waiting = checked.waiting
    else:
        check = _checked_file(file, ChainCheck(noted, after=start))
        chain_break = check.end()
        seq, digest = check.seq, check.hash
        broken = None if chain_break is None else (chain_break.seq, chain_break.reason)
    if broken is not None:
        raise TunefarmError(
            f"the audit log is broken at entry {broken[0]}: {broken[1]}; the {seq - start[0]} before are right",
            code="audit-broken",
            seq=broken[0],
            reason=broken[1],
        )
    out.result(
        {"seq": seq, "hash": digest, "broken": None, "waiting": waiting},
        f"all {seq - start[0]} entries are right; the head is {seq}:{digest}"
        + (f"; {waiting} are not in the log yet" if waiting else ""),
    )


def _parsed(option: str, head: str | None) -> tuple[int, str] | None:
    parsed = None if head is None else parse_head(head)
    if head is not None and parsed is None:
        raise InvalidInputError(f"{option} must be NO:HASH, as a check prints it", code="invalid-input")
    return parsed


def _checked_file(file: Path, check: ChainCheck) -> ChainCheck:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                goes_on = check.take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInputError(
                    f"line {number} is no entry of an audit log", code="invalid-input", line=number
                ) from error
            if not goes_on:
                break
    return check
