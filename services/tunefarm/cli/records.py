"""``tunefarm records``: list, export and compare tuning records, on the server and in files."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.completion import complete_job
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.option_group import OptionGroup
from tunefarm.cli.base.options import Limit, OutFile
from tunefarm.cli.base.output import Output, write_whole
from tunefarm.cli.base.references import find_job
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm.client import Record

app = group("records", "Search, export and reduce tuning records, on the server and in files.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter(OptionGroup):
    """The filters of records."""

    workload: Annotated[str | None, typer.Option("--workload", metavar="KEY", help="Only this workload.")] = (
        None
    )
    target: Annotated[
        str | None, typer.Option("--target", metavar="KEY", help="Only this target, spelled as in records.")
    ] = None
    device_model: Annotated[
        str | None, typer.Option("--device-model", metavar="MODEL", help="Only this device model.")
    ] = None
    operator: Annotated[
        str | None,
        typer.Option("--operator", metavar="NAME", help="Only kernels whose name contains this (conv2d)."),
    ] = None
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            metavar="DIMS",
            help="Only kernels with an argument whose shape contains this (56x56x64).",
        ),
    ] = None

    def keywords(self) -> dict[str, str | None]:
        """Return the keyword arguments for the client's methods."""
        return {
            "workload_key": self.workload,
            "target_key": self.target,
            "device_model": self.device_model,
            "operator": self.operator,
            "shape": self.shape,
        }

    def admits(self, record: Record) -> bool:
        """Return whether a record has the given workload, target and device model; None matches any."""
        keys = ("workload_key", "target_key", "device_model")
        return all(self.keywords()[key] in (None, getattr(record, key)) for key in keys)


@command(app, "list")
def list_records(
    out: Output,
    server: Server,
    matching: RecordFilter,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="Only this outcome (ok, run-error, …).")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List records. With --json, one record a line."""
    with server.connect() as client:
        records = client.records.all(**matching.keywords(), outcome=outcome)
        _print(out, list(islice(records, limit)))


@command(app, "best")
def list_best(
    out: Output,
    server: Server,
    matching: RecordFilter,
    limit: Limit = 50,
) -> None:
    """List the fastest record of every workload, target, device model and toolchain. With --json, one record a line."""
    with server.connect() as client:
        _print(out, list(islice(client.records.best(**matching.keywords()), limit)))


@command(app, "export")
def export_records(
    out: Output,
    server: Server,
    *,
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="JOB_ID", help="Only records of this job.", autocompletion=complete_job
        ),
    ] = None,
    matching: RecordFilter,
    best: Annotated[
        bool,
        typer.Option(
            "--best",
            help="Only the fastest record of every workload, target, device model, toolchain and space.",
        ),
    ] = False,
    output: OutFile = None,
) -> None:
    """Write records as JSON lines, for the engine's `apply_history_best` and `load_records`."""
    from tunefarm_tuning.records.record import TuningRecord
    from tunefarm_tuning.records.selection import pick_best

    if job is not None and (matching.operator or matching.shape):
        raise InvalidInputError("--job cannot be combined with --operator or --shape", code="invalid-request")
    with server.connect() as client:
        job = None if job is None else find_job(client, job)
        ask = client.records.best if best else client.records.all
        answers = (
            ask(**matching.keywords()) if job is None else filter(matching.admits, client.jobs.records(job))
        )
        records = [TuningRecord.from_fields(answer.raw) for answer in answers]
    if best:
        records = pick_best(records)
    _write_lines(out, [record.to_json() for record in records], output)


@command(app, "pick-best")
def pick_best_records(
    out: Output,
    file: Annotated[
        Path, typer.Argument(metavar="RECORDS.jsonl", help="File of records, one JSON object a line.")
    ],
    output: OutFile = None,
) -> None:
    """Reduce a file to the fastest record of every workload, target, device model, toolchain and space.

    Needs no server. Writes JSON lines.
    """
    from tunefarm_tuning.records.record import load_records
    from tunefarm_tuning.records.selection import pick_best

    fastest = pick_best(load_records(file))
    _write_lines(out, [record.to_json() for record in fastest], output)


def _print(out: Output, records: list[Record]) -> None:
    out.items(
        records,
        {
            "kernel": lambda record: record.kernel or quantities.NONE,
            "shapes": lambda record: record.shapes or quantities.NONE,
            "workload": lambda record: record.workload_key[:16],
            "target": lambda record: record.target_key,
            "device model": lambda record: record.device_model,
            "toolchain": lambda record: record.toolchain,
            "outcome": lambda record: record.outcome,
            ">time per call": lambda record: quantities.latency(record.cost_sec),
            "tuner": lambda record: record.tuner,
            "measured": lambda record: quantities.local_time(record.measured_at),
        },
        json_lines=True,
    )


def _write_lines(out: Output, lines: list[str], path: Path | None) -> None:
    """Write JSON lines to standard output, or to a file that appears only when it is complete."""
    text = "".join(f"{line}\n" for line in lines)
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_whole(path, text)
    out.result({"records": len(lines), "output": str(path)}, f"{path}: {len(lines)} records")
