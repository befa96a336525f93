"""``tunefarm records``: list, export, import and reduce tuning records, on the server and in files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.completion import complete_job
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.option_group import OptionGroup
from tunefarm.cli.base.options import Limit, OutFile
from tunefarm.cli.base.output import Output, write_whole
from tunefarm.cli.base.references import find_device, find_job, is_whole_id
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm.client import Client, Record, RecordImport
    from tunefarm_tuning.records.record import TuningRecord

app = group("records", "Search, export, import and reduce tuning records, on the server and in files.")


class Format(StrEnum):
    """A format of records in files."""

    JSON_LINES = "json-lines"
    METASCHEDULE = "metaschedule"


_SERVERS_REASONS: Mapping[str, str] = {
    "on-record": "the farm has them already",
    "unknown-workload": "no model of the farm has its kernel with this version of TVM; --keep-unknown imports it anyway",
    "space-changed": "its config space differs from its kernel's config space here: another release measured it",
}


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
        _print(out, out.first(records, limit))


@command(app, "best")
def list_best(
    out: Output,
    server: Server,
    matching: RecordFilter,
    limit: Limit = 50,
) -> None:
    """List the fastest record of every workload, target, device model and toolchain. With --json, one record a line."""
    with server.connect() as client:
        _print(out, out.first(client.records.best(**matching.keywords()), limit))


@command(app, "export")
def export_records(
    out: Output,
    server: Server,
    *,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB_ID",
            help="Only records of this job: its id, a part of it, or its model's name.",
            autocompletion=complete_job,
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
    format: Annotated[  # noqa: A002  (the option's name)
        Format,
        typer.Option(
            "--format",
            help="JSON lines, or a folder (--output) with a database of TVM's MetaSchedule, which needs TVM here.",
        ),
    ] = Format.JSON_LINES,
    output: OutFile = None,
) -> None:
    """Write records as JSON lines, for the engine's `apply_history_best` and `load_records`, or for TVM's own flow.

    A database of TVM's holds one target and one device model. The command says how many records it cannot hold.
    """
    from tunefarm_tuning.records.record import TuningRecord
    from tunefarm_tuning.records.selection import pick_best

    if job is not None and (matching.operator or matching.shape):
        raise InvalidInputError("--job cannot be combined with --operator or --shape", code="invalid-request")
    if format is Format.METASCHEDULE and output is None:
        raise InvalidInputError(
            "--format metaschedule writes two files: name their folder, --output FOLDER",
            code="invalid-request",
        )
    with server.connect() as client:
        job = None if job is None else find_job(client, job)
        ask = client.records.best if best else client.records.all
        answers = (
            ask(**matching.keywords()) if job is None else filter(matching.admits, client.jobs.records(job))
        )
        records = [
            replace(
                TuningRecord.from_fields(answer.raw),
                shapes=quantities.ascii_kernel_shapes(answer.raw.get("args") or ()),
            )
            for answer in answers
        ]
        if best:
            records = pick_best(records)
        if format is Format.METASCHEDULE and output is not None:
            _write_database(out, client, records, output)
            return
    _write_lines(out, [record.to_json() for record in records], output)


@command(app, "import")
def import_records(
    out: Output,
    server: Server,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A file of records, one JSON object per line; or the folder of a database of TVM's MetaSchedule.",
        ),
    ],
    *,
    format: Annotated[  # noqa: A002  (the option's name)
        Format | None,
        typer.Option(
            "--format", help="By default, a folder is a database of MetaSchedule, a file JSON lines."
        ),
    ] = None,
    device_model: Annotated[
        str | None,
        typer.Option(
            "--device-model",
            metavar="MODEL",
            help="Device model that TVM measured on, spelled as in records; the farm's only one by default. For MetaSchedule.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Target for records for which TVM noted no target. For MetaSchedule."),
    ] = None,
    keep_unknown: Annotated[
        bool,
        typer.Option("--keep-unknown", help="Add records of kernels that no model of the farm has, too."),
    ] = False,
) -> None:
    """Add records to the farm's history: of another farm, of the engine's log, or of a search of TVM's own.

    If the source is damaged, nothing is added. Records that the farm has already are left out, so an import can be repeated. Reading
    MetaSchedule's database needs TVM here. Of its traces, those are imported whose kernel a config of tunefarm gives exactly.
    """
    if not source.exists():
        raise InvalidInputError(f"{source}: there is no such file", code="no-file")
    is_database = format is Format.METASCHEDULE or (format is None and source.is_dir())
    if not is_database and source.is_dir():
        raise InvalidInputError(f"{source} is a folder: name a file of JSON lines", code="no-file")
    left_out: Counter[str] = Counter()
    with server.connect() as client:
        if is_database:
            from tunefarm_tuning.records.metaschedule import import_metaschedule

            model = device_model or _only_device_model(client)
            database = import_metaschedule(source, device_model=model, target=target)
            left_out.update(database.left_out)
            with TemporaryDirectory(prefix="tunefarm-records-") as folder:
                lines = Path(folder, "records.jsonl")
                lines.write_text("".join(f"{record.to_json()}\n" for record in database.records), "utf-8")
                answer = client.records.add(lines, keep_unknown=keep_unknown)
        else:
            answer = _add_lines(client, source, keep_unknown=keep_unknown)
    left_out.update(answer.left_out)
    out.result(
        {"imported": answer.imported, "left_out": dict(left_out), "unchecked": answer.unchecked},
        f"{quantities.plural(answer.imported, 'record')} imported",
    )
    if answer.unchecked:
        out.note(
            f"{quantities.plural(answer.unchecked, 'record')} of kernels that no job has tuned here: it is not known yet whether "
            "their configs fit the kernels' config spaces; a job's report names the records that do not apply"
        )
    _note_left_out(out, left_out)


def _add_lines(client: Client, source: Path, *, keep_unknown: bool) -> RecordImport:
    """Add the records of a file of JSON lines; a refusal of the server's names the file."""
    from tunefarm.client.errors import InvalidRequestError

    try:
        return client.records.add(source, keep_unknown=keep_unknown)
    except InvalidRequestError as error:
        error.detail = f"{source}, read as records in JSON lines: {error.detail}"
        raise


@command(app, "purge")
def purge_records(
    out: Output,
    server: Server,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="Name or id of the device, or a part of its id."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY_ID", help="Key that imported them, or one before its rotation."),
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", metavar="SHA256", help="Only under this certificate of the agent."),
    ] = None,
    ticket: Annotated[
        str | None,
        typer.Option("--ticket", metavar="JTI", help="Only what was measured in the session of this ticket."),
    ] = None,
) -> None:
    """Delete the records that a device measured, or that an API key imported. Needs a key with the scope admin.

    It lists the jobs whose artifacts were compiled with them. Deleting a device's records also deletes the decisions that compiles
    remembered; later compiles decide again. `tunefarm device list --state removed` shows the ids of removed devices.
    """
    if (device is None) == (key is None) or (key and (certificate or ticket)):
        raise InvalidInputError(
            "name a --device, whose records --certificate and --ticket narrow, or a --key",
            code="invalid-request",
        )
    with server.connect() as client:
        if device is None:
            purged = client.records.purge_imports(str(key))
        else:
            device_id = device if is_whole_id(device) else find_device(client, device).id
            purged = client.records.purge(device_id, certificate_sha256=certificate, ticket_jti=ticket)
    out.result(
        {"records": purged.records, "measured_by": list(purged.measured_by), "used_by": list(purged.used_by)},
        f"{quantities.plural(purged.records, 'record')} deleted",
    )
    if purged.used_by:
        out.note("compiled with them, to be compiled again: " + ", ".join(purged.used_by))


@command(app, "pick-best")
def pick_best_records(
    out: Output,
    file: Annotated[
        Path, typer.Argument(metavar="RECORDS.jsonl", help="File of records, one JSON object per line.")
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


def _write_database(out: Output, client: Client, records: Sequence[TuningRecord], folder: Path) -> None:
    """Write a database of MetaSchedule, with the code of the records' kernels from the server."""
    from tunefarm.client import NotFoundError
    from tunefarm_tuning.records.metaschedule import export_metaschedule
    from tunefarm_tuning.target.toolchain import toolchain_key
    from tunefarm_tuning.workload.task import TensorSpec, Workload

    workloads = []
    for key in dict.fromkeys(record.workload_key for record in records):
        try:
            code = client.records.workload(key, toolchain_key())
        except NotFoundError:
            continue  # its records are counted
        args = tuple(TensorSpec.from_json(spec) for spec in code.raw["args"])
        workloads.append(Workload(key=key, name=code.name, flops=code.flops, args=args, ir=code.ir))
    written = export_metaschedule(records, workloads, folder)
    out.result(
        {"records": written.records, "left_out": dict(written.left_out), "output": str(folder)},
        f"{folder}: {quantities.plural(written.records, 'record')}",
    )
    _note_left_out(out, written.left_out)


def _note_left_out(out: Output, left_out: Mapping[str, int]) -> None:
    from tunefarm_tuning.records.metaschedule import REASONS

    for reason, count in left_out.items():
        why = _SERVERS_REASONS.get(reason) or REASONS.get(reason, reason)
        out.note(f"{quantities.plural(count, 'record')} left out ({reason}): {why}")


def _only_device_model(client: Client) -> str:
    models = sorted({device.device_model for device in client.devices.list()})
    if len(models) == 1:
        return models[0]
    known = f" The farm has {', '.join(models)}." if models else ""
    raise InvalidInputError(
        f"TVM's records do not say what they were measured on: give --device-model.{known}",
        code="device-model-required",
        known=models,
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
