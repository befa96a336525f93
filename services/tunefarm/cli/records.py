"""``tunefarm records``: list, export and compare tuning records, on the server and in files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.completion import complete_job
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import Limit
from tunefarm.cli.base.output import Output, write_whole
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm.client import Record
    from tunefarm_tuning.records.record import TuningRecord

app = group("records", "The history of measurements, on the server and in files.")

Workload = Annotated[str | None, typer.Option("--workload", metavar="KEY", help="Only this workload.")]
Target = Annotated[
    str | None, typer.Option("--target", metavar="KEY", help="Only this target, as records spell it.")
]
DeviceModel = Annotated[
    str | None, typer.Option("--device-model", metavar="MODEL", help="Only this device model.")
]
Operator = Annotated[
    str | None,
    typer.Option("--operator", metavar="NAME", help="Only kernels whose name has this in it (conv2d)."),
]
Shape = Annotated[
    str | None,
    typer.Option(
        "--shape",
        metavar="DIMS",
        help="Only kernels with an argument of such a shape, or a part of it: 56x56x64.",
    ),
]
OutFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here instead of standard output.")
]


@command(app, "list")
def list_records(
    out: Output,
    server: Server,
    workload: Workload = None,
    target: Target = None,
    device_model: DeviceModel = None,
    operator: Operator = None,
    shape: Shape = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="Only this outcome (ok, run-error, …).")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List records; as JSON, one a line."""
    with server.connect() as client:
        records = client.records.all(
            workload_key=workload,
            target_key=target,
            device_model=device_model,
            operator=operator,
            shape=shape,
            outcome=outcome,
        )
        _print(out, list(islice(records, limit)))


@command(app, "best")
def list_best(
    out: Output,
    server: Server,
    workload: Workload = None,
    target: Target = None,
    device_model: DeviceModel = None,
    operator: Operator = None,
    shape: Shape = None,
    limit: Limit = 50,
) -> None:
    """List the fastest record of every workload, target, device model and toolchain; as JSON, one a line."""
    with server.connect() as client:
        records = client.records.best(
            workload_key=workload,
            target_key=target,
            device_model=device_model,
            operator=operator,
            shape=shape,
        )
        _print(out, list(islice(records, limit)))


@command(app, "export")
def export_records(
    out: Output,
    server: Server,
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="JOB_ID", help="Only what this job measured.", autocompletion=complete_job
        ),
    ] = None,
    workload: Workload = None,
    target: Target = None,
    device_model: DeviceModel = None,
    operator: Operator = None,
    shape: Shape = None,
    best: Annotated[
        bool,
        typer.Option(
            "--best", help="Only the fastest of every workload, target, device model, toolchain and space."
        ),
    ] = False,
    output: OutFile = None,
) -> None:
    """Write records as JSON lines, for `apply_history_best` and `load_records` of the engine."""
    from tunefarm_tuning.records.selection import pick_best

    if job is not None and (operator or shape):
        raise InvalidInputError("--job goes with neither --operator nor --shape", code="invalid-request")
    with server.connect() as client:
        ask = client.records.best if best else client.records.all
        matching = (
            (record for record in client.jobs.records(job) if _is(record, workload, target, device_model))
            if job is not None
            else ask(
                workload_key=workload,
                target_key=target,
                device_model=device_model,
                operator=operator,
                shape=shape,
            )
        )
        records = [_tuning_record(record.raw) for record in matching]
    if best:
        records = pick_best(records)
    _write_lines(out, [record.to_json() for record in records], output)


@command(app, "pick-best")
def pick_best_records(
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="RECORDS.jsonl", help="Records, one JSON object a line.")],
    output: OutFile = None,
) -> None:
    """Keep the fastest record of every workload, target, device model, toolchain and space of a file.

    Works on files alone, without a server. The records come out as JSON lines.
    """
    from tunefarm_tuning.records.record import load_records
    from tunefarm_tuning.records.selection import pick_best

    kept = pick_best(load_records(file))
    _write_lines(out, [record.to_json() for record in kept], output)


def _is(record: Record, workload: str | None, target: str | None, device_model: str | None) -> bool:
    wanted = (
        (workload, record.workload_key),
        (target, record.target_key),
        (device_model, record.device_model),
    )
    return all(wish is None or wish == value for wish, value in wanted)


def _tuning_record(raw: Mapping[str, Any]) -> TuningRecord:
    """Return the engine's record for the API's."""
    from tunefarm_tuning.core.outcome import Outcome
    from tunefarm_tuning.records.record import TuningRecord
    from tunefarm_tuning.space.config import Config

    return TuningRecord(
        workload_key=raw["workload_key"],
        target_key=raw["target_key"],
        device_model=raw["device_model"],
        toolchain=raw["toolchain"],
        space_key=raw["space_key"],
        config=Config.from_json(raw["config"]),
        outcome=Outcome(raw["outcome"]),
        samples_sec=tuple(raw["samples_sec"]),
        build_sec=raw["build_sec"],
        measured_at=raw["measured_at"],
        tuner=raw["tuner"],
        message=raw["message"],
        extra=raw["extra"] or {},
    )


def _print(out: Output, records: list[Record]) -> None:
    if out.json:
        for record in records:
            out.data(record.raw)
        return
    out.table(
        ("workload", "target", "device model", "toolchain", "outcome", ">time per call", "tuner", "measured"),
        (
            (
                r.workload_key[:16],
                r.target_key,
                r.device_model,
                r.toolchain,
                r.outcome,
                quantities.latency(r.cost_sec),
                r.tuner,
                quantities.local_time(r.measured_at),
            )
            for r in records
        ),
    )


def _write_lines(out: Output, lines: list[str], path: Path | None) -> None:
    """Write JSON lines to a file, whole or not at all, or to standard output."""
    text = "".join(f"{line}\n" for line in lines)
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_whole(path, text)
    if out.json:
        out.data({"records": len(lines), "output": str(path)})
    else:
        out.text(f"{path}: {len(lines)} records")
