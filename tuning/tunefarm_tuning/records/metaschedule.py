"""MetaSchedule's JSON database: write our records for TVM's own flow, and read TVM's records as ours.

A database is a folder with two files of JSON lines: the workloads, and the records, each with a trace of schedule instructions.
TVM looks a record up by its workload alone: a database is of one target and one device model.
"""

from __future__ import annotations

import base64
import binascii
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import InvalidInputError, UnknownTargetError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.core.output_file import cannot_write, output_file, writing
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process import ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.process.limits import WORKLOADS_BYTES
from tunefarm_tuning.process.sandbox import Access
from tunefarm_tuning.records.record import LONGEST_SEC, SHORTEST_SEC, TuningRecord
from tunefarm_tuning.records.selection import without_superseded
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.task import Workload

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
"""The files of a database, as TVM names them."""

MAX_BYTES = 256 << 20
"""Largest file that is read: 2,500 workloads, or 60,000 records."""

TUNER = "metaschedule"
"""Name of the tuner in imported records."""

REASONS: Mapping[str, str] = {
    "superseded": "its config was measured again, and that record counts",
    "failed": "the trial failed, and TVM's database has no place for failures",
    "other-toolchain": "measured with another version of TVM than the installed version",
    "no-workload": "its kernel's code is not known here",
    "space-changed": "its config space differs from this release's config space",
    "no-trace": "no trace of MetaSchedule gives this kernel: its tiles leave a tail, or it uses an instruction of the CPU that "
    "MetaSchedule has no rule for",
    "not-measured": "TVM noted no time for it",
    "no-target": "TVM noted no target for it: name a target",
    "unknown-target": "its target is not known here",
    "not-a-kernel": "its workload is not a single kernel that can be tuned here",
    "cannot-be-scheduled": "its workload has no config space for its target",
    "no-config": "no config of ours gives the kernel of its trace",
}
"""Why a record is left out."""

_MODULE = "tunefarm_tuning.tvm.children.interchange"
_TIMEOUT_SEC = 120.0
_RECORD_SEC = 2.0
_OWN_WORDS = frozenset({"keys", "tag"})  # what TVM adds to a target's JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDatabase:
    """The records of a database of TVM's.

    Attributes:
        records: Those that have a config here, in the order of the file.
        left_out: How many others there are, by reason (`REASONS`).
    """

    records: tuple[TuningRecord, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDatabase:
    """What a written database holds.

    Attributes:
        records: How many records it has.
        left_out: How many others were given, by reason (`REASONS`).
    """

    records: int
    left_out: Mapping[str, int]


def export_metaschedule(
    records: Iterable[TuningRecord], workloads: Iterable[Workload], folder: Path | str
) -> ExportedDatabase:
    """Write records as a JSON database of MetaSchedule, which `JSONDatabase(work_dir=folder)` reads.

    Superseded records are left out: TVM takes the fastest record of a workload, the lucky one too.

    Args:
        records: Records of one target and device model.
        workloads: The workloads of the records, as this version of TVM extracted them.
        folder: Where to write the two files; they must not exist. Both appear when all is written.

    Raises:
        InvalidInputError: ``mixed-records`` if they are of several targets or device models, ``output-exists``, ``cannot-write``.
        ChildFailed: If TVM crashed or exceeded its time.
    """
    folder = Path(folder)
    for name in (WORKLOADS, RECORDS):
        if (folder / name).exists():
            raise InvalidInputError(
                f"{clean(str(folder), 300)} has a {name} already: name another folder", code="output-exists"
            )
    given = list(records)
    standing = without_superseded(given)
    _check_of_one_device(standing)
    known = {workload.key: workload for workload in workloads}
    left_out: Counter[str] = Counter({"superseded": len(given) - len(standing)})
    records_by_workload: dict[str, list[TuningRecord]] = {}
    for record in standing:
        reason = (
            "failed"
            if record.outcome is not Outcome.OK
            else "other-toolchain"
            if record.toolchain != toolchain_key()
            else "no-workload"
            if record.workload_key not in known
            else None
        )
        if reason is None:
            records_by_workload.setdefault(record.workload_key, []).append(record)
        else:
            left_out[reason] += 1
    written = 0
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tunefarm-records-") as scratch:
        access = Access(writes=(Path(scratch),))
        with ChildProcess(_MODULE, limits=ChildLimits(reply_bytes=WORKLOADS_BYTES), access=access) as child:
            for key, group in records_by_workload.items():
                refusals = _add(child, scratch, known[key], group)
                left_out.update(reason for reason in refusals if reason is not None)
                written += refusals.count(None)
        _publish(Path(scratch), folder)
    return ExportedDatabase(records=written, left_out=dict(+left_out))


def _check_of_one_device(records: Sequence[TuningRecord]) -> None:
    for what, values in (
        ("targets", {record.target_key for record in records}),
        ("device models", {record.device_model for record in records}),
    ):
        if len(values) > 1:
            names = ", ".join(clean(value) for value in sorted(values)[:8])
            raise InvalidInputError(
                f"the records are of {len(values)} {what} ({names}): choose one, because TVM's database tells none apart",
                code="mixed-records",
            )


def _add(
    child: ChildProcess, folder: str, workload: Workload, records: Sequence[TuningRecord]
) -> list[str | None]:
    params = {
        "folder": folder,
        "ir": workload.ir,
        "target": parse_target(records[0].target_key).to_json(),
        "records": [
            {
                "config": record.config.to_json(),
                "space_key": record.space_key,
                "samples_sec": list(record.samples_sec),
            }
            for record in records
        ],
    }
    refusals: list[str | None] = child.call(
        "add", params, timeout_sec=_TIMEOUT_SEC + _RECORD_SEC * len(records)
    )
    return refusals


def _publish(source: Path, folder: Path) -> None:
    """Copy a database's files into the folder; the records last: without them nothing is found."""
    for name in (WORKLOADS, RECORDS):
        text = (source / name).read_bytes() if (source / name).exists() else b""
        if (folder / name).exists():
            raise cannot_write(folder / name, "another process wrote it meanwhile")
        with output_file(folder / name) as temporary, writing(folder / name):
            temporary.write_bytes(text)


def import_metaschedule(
    folder: Path | str, *, device_model: str, target: Target | str | None = None
) -> ImportedDatabase:
    """Read the JSON database of a search of TVM's own.

    A trace becomes a record if a config of ours gives exactly its kernel, which is checked by applying both.

    Args:
        folder: The search's ``work_dir``: it has the files of `WORKLOADS` and `RECORDS`.
        device_model: What TVM measured on, as our records name it; TVM's have no such field.
        target: What to take for records without a target.

    Returns:
        Records of the installed toolchain, measured when the file was last written.

    Raises:
        InvalidInputError: ``no-file``, ``too-large``, ``bad-database`` (broken JSON, or not a database), ``database-incomplete`` (its
            last line is cut), ``database-mismatch`` (the files do not belong together), ``database-of-other-tvm``.
        ChildFailed: If TVM crashed or exceeded its time.
    """
    folder = Path(folder)
    workloads = [(number, _workload(line, number, folder)) for number, line in _lines(folder / WORKLOADS)]
    default = None if target is None else parse_target(target)
    left_out: Counter[str] = Counter()
    groups: dict[tuple[int, Target], list[_Line]] = {}
    for number, value in _lines(folder / RECORDS):
        line = _record(value, number, folder)
        if not line.workload < len(workloads):
            raise InvalidInputError(
                f"{_name(folder / RECORDS)}, line {number}: it is of workload {line.workload}, but {WORKLOADS} has only "
                f"{len(workloads)}: the files do not belong together",
                code="database-mismatch",
                line=number,
            )
        reason, record_target = _target_of(line, default)
        if record_target is None:
            left_out[reason] += 1
        else:
            groups.setdefault((line.workload, record_target), []).append(line)
    measured_at = min((folder / RECORDS).stat().st_mtime, time.time())
    records: list[tuple[int, TuningRecord]] = []
    with ChildProcess(_MODULE, limits=ChildLimits(reply_bytes=WORKLOADS_BYTES)) as child:
        for (workload, group_target), lines in groups.items():
            number, text = workloads[workload]
            answer = _read(child, text, group_target, lines, f"{_name(folder / WORKLOADS)}, line {number}")
            if "refused" in answer:
                left_out[answer["refused"]] += len(lines)
                continue
            for line, config in zip(lines, answer["configs"], strict=True):
                if config is None:
                    left_out["no-config"] += 1
                    continue
                record = TuningRecord(
                    workload_key=answer["key"],
                    target_key=group_target.key,
                    device_model=device_model,
                    toolchain=toolchain_key(),
                    space_key=answer["space_key"],
                    config=Config.from_json(config),
                    outcome=Outcome.OK,
                    samples_sec=line.samples_sec,
                    build_sec=0.0,
                    measured_at=measured_at,
                    tuner=TUNER,
                )
                records.append((line.number, record))
    records.sort(key=lambda numbered: numbered[0])
    return ImportedDatabase(records=tuple(record for _, record in records), left_out=dict(left_out))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of the file of records."""

    number: int
    workload: int
    trace: Any
    samples_sec: tuple[float, ...]
    target: Any


def _read(
    child: ChildProcess, workload: Any, target: Target, lines: Sequence[_Line], where: str
) -> dict[str, Any]:
    params = {
        "workload": workload,
        "target": target.to_json(),
        "traces": [line.trace for line in lines],
    }
    try:
        answer: dict[str, Any] = child.call(
            "read", params, timeout_sec=_TIMEOUT_SEC + _RECORD_SEC * len(lines)
        )
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{where}: another version of TVM wrote the database ({toolchain_key()} is installed); {error.message}",
            code=error.code,
        ) from error
    except ChildFailed as error:
        raise InvalidInputError(
            f"{where}: TVM crashed reading it: {error.message}", code="bad-database"
        ) from error
    return answer


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a file of JSON lines.

    Raises:
        InvalidInputError: ``no-file``, ``too-large``, ``bad-database``, ``database-incomplete``.
    """
    name = _name(path)
    if not path.is_file():
        raise InvalidInputError(
            f"{name}: there is no such file; a database is a folder with {WORKLOADS} and {RECORDS}",
            code="no-file",
        )
    if path.stat().st_size > MAX_BYTES:
        raise InvalidInputError(
            f"{name} is larger than {MAX_BYTES >> 20} MiB: prune the database first (TVM's `dump_pruned`)",
            code="too-large",
            limit_bytes=MAX_BYTES,
        )
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                if line.endswith(b"\n"):
                    raise _bad(path, number, f"not JSON: {clean(str(error))}") from error
                raise InvalidInputError(
                    f"{name}, line {number}: the last line is cut; is it being written, or was its writer killed? Remove "
                    "the line to import the others",
                    code="database-incomplete",
                    line=number,
                ) from error


def _workload(value: Any, number: int, folder: Path) -> list[str]:
    """Check a line of the file of workloads: a hash, and TVM's JSON after its length, in base64."""
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)):
        raise _bad(folder / WORKLOADS, number, "not a workload of MetaSchedule")
    try:
        data = base64.b64decode(value[1], validate=True)
        json.loads(data[8:])
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _bad(folder / WORKLOADS, number, f"the workload is damaged: {clean(str(error))}") from error
    if int.from_bytes(data[:8], "little") != len(data) - 8:
        raise _bad(
            folder / WORKLOADS, number, "the workload is damaged: it has another length than it states"
        )
    return value


def _record(value: Any, number: int, folder: Path) -> _Line:
    try:
        workload, (trace, run_secs, target, _) = value
        samples = tuple(float(sec) for sec in run_secs or ())
        if type(workload) is not int or workload < 0 or not isinstance(trace, list):
            raise ValueError("no workload's number, or no trace")
    except (TypeError, ValueError, OverflowError) as error:
        raise _bad(folder / RECORDS, number, f"not a record of MetaSchedule: {clean(str(error))}") from error
    is_measured = all(SHORTEST_SEC <= sec <= LONGEST_SEC for sec in samples)  # it notes 1e10 s for a failure
    return _Line(
        number=number,
        workload=workload,
        trace=trace,
        samples_sec=samples if is_measured else (),
        target=target,
    )


def _target_of(line: _Line, default: Target | None) -> tuple[str, Target | None]:
    """Return the target of a record, else why the record is left out."""
    if not line.samples_sec:
        return "not-measured", None
    if line.target is None:
        return "no-target", default
    try:
        return "", parse_target(_plain_target(line.target))
    except UnknownTargetError:
        return "unknown-target", None


def _plain_target(value: Any) -> Any:
    """Return a target's JSON without what TVM adds to it; a CPU that only builds a GPU's host code is no part of it."""
    if not isinstance(value, dict):
        return value
    return {
        name: _plain_target(member)
        for name, member in value.items()
        if name not in _OWN_WORDS and not (name == "host" and value.get("kind") == "cuda")
    }


def _bad(path: Path, number: int, why: str) -> InvalidInputError:
    return InvalidInputError(f"{_name(path)}, line {number}: {why}", code="bad-database", line=number)


def _name(path: Path) -> str:
    return clean(str(path), 300)
