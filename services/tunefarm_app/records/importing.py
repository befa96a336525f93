"""Take records from outside into the farm's history: of another farm, of the library, of a search of TVM's."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from tunefarm_app.access.quotas import check_bytes
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.json_text import UNSTORABLE
from tunefarm_app.storage.rows import is_current
from tunefarm_db.acting import acting
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, NewRecord, Space
from tunefarm_tuning.core.errors import InvalidRecordError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.records.metaschedule import TUNER as METASCHEDULE
from tunefarm_tuning.records.record import LONGEST_SEC, SHORTEST_SEC, TuningRecord
from tunefarm_tuning.space.misfit import misfit

log = structlog.stdlib.get_logger(__name__)

UNKNOWN_WORKLOAD, ON_RECORD, SPACE_CHANGED = "unknown-workload", "on-record", "space-changed"
_LONGEST = {
    "workload_key": 200,
    "target_key": 2000,
    "device_model": 200,
    "toolchain": 200,
    "space_key": 200,
    "tuner": 100,
}
_MESSAGE, _JSON, _SAMPLES = 4000, 20_000, 1000
_SAMPLES_TELL = 3
"""So many equal samples are of one measurement."""
_CLOCKS_APART_SEC = 86400.0
_KEYS_AT_ONCE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordImport:
    """What became of the records of an import.

    Attributes:
        imported: How many were added.
        left_out: How many others there were, by reason: `UNKNOWN_WORKLOAD`, `ON_RECORD`, `SPACE_CHANGED`.
        unchecked: How many of the added ones are of a kernel whose config space the farm does not know yet, as no job has tuned it.
    """

    imported: int
    left_out: Mapping[str, int]
    unchecked: int = 0


def read_records(lines: Iterable[bytes]) -> Iterator[tuple[int, TuningRecord]]:
    """Yield the records of JSON lines, each with the number of its line, and skip blank lines.

    Raises:
        InvalidRecordError: At the first line that is no record, or whose values cannot be: ``records-incomplete`` if it is the last
            one and cut, else ``invalid-record``; the message has its number.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = TuningRecord.from_json(line.decode("utf-8"))
            _check(record)
        except (InvalidRecordError, UnicodeDecodeError) as error:
            reason = (
                error.message
                if isinstance(error, InvalidRecordError)
                else "the records are not text in UTF-8"
            )
            if not line.endswith(b"\n") and not line.rstrip().endswith(b"}"):
                raise InvalidRecordError(
                    f"line {number}: the last line is incomplete: the file is still being written, or its writer was killed",
                    code="records-incomplete",
                    line=number,
                ) from error
            raise InvalidRecordError(f"line {number}: {clean(reason, 300)}", line=number) from error
        yield number, record


def import_records(
    services: Services, records: Iterable[tuple[int, TuningRecord]], *, keep_unknown: bool = False
) -> RecordImport:
    """Add records to the history, all in one transaction.

    A record that the history has already is left out; so is one of a workload that no model of the farm has with the record's
    toolchain, unless `keep_unknown` is set: a model that comes later may have it. Of a kernel that this release has tuned here, a
    record of another config space is left out as well, because no job could use it.

    Args:
        services: The process's services.
        records: Records with the numbers of their lines, as `read_records` yields them.
        keep_unknown: Whether to add records of unknown workloads.

    Raises:
        InvalidRecordError: ``invalid-record`` if a config is none of its config space; the message has the line.
        QuotaError: ``quota-bytes``.
    """
    by_workload: dict[str, list[tuple[int, TuningRecord]]] = {}
    for number, record in records:
        by_workload.setdefault(record.workload_key, []).append((number, record))
    left_out: Counter[str] = Counter()
    with services.uow.write() as repos:
        known = _Known(repos, by_workload)
        added = [
            record
            for key, group in by_workload.items()
            for record in _new_records(known, key, group, left_out, keep_unknown=keep_unknown)
        ]
        rows = [_row(record, acting().owner) for record in added]
        check_bytes(repos, sum(row.size_bytes or 0 for row in rows))
        repos.records.add_many(rows)
        unchecked = sum(known.space_of(record) is None for record in added)
        repos.audit.note(AuditAction.RECORDS_IMPORTED, records=len(added))
    log.info(
        "records imported", imported=len(added), **{name.replace("-", "_"): n for name, n in left_out.items()}
    )
    return RecordImport(imported=len(added), left_out=dict(left_out), unchecked=unchecked)


class _Known:
    """What the farm knows of workloads.

    Of those that it has never seen nothing is asked, however many an import names: on SQLite nobody else writes meanwhile.
    """

    def __init__(self, repos: Repositories, workload_keys: Collection[str]) -> None:
        self._repos = repos
        self._toolchains = repos.workloads.toolchains(workload_keys)
        recorded = repos.records.recorded(workload_keys)
        self._recorded = [key for key in workload_keys if key in recorded]
        self._positions = {key: position for position, key in enumerate(self._recorded)}
        self._on_record: dict[str, list[TuningRecord]] = {}
        self._spaces: dict[tuple[str, str, str], Space | None] = {}

    def toolchains(self, workload_key: str) -> Collection[str]:
        """Return the toolchains with which models have the workload."""
        return self._toolchains.get(workload_key, ())

    def on_record(self, workload_key: str) -> list[TuningRecord]:
        """Return what was measured of the workload. The next ones in order are read with it."""
        position = self._positions.get(workload_key)
        if position is None:
            return []
        if workload_key not in self._on_record:
            keys = self._recorded[position : position + _KEYS_AT_ONCE]
            self._on_record = {key: [] for key in keys}
            for values in self._repos.records.measurements(keys):
                record = TuningRecord.from_fields(values)
                self._on_record[record.workload_key].append(record)
        return self._on_record[workload_key]

    def space_of(self, record: TuningRecord) -> Space | None:
        """Return the config space that this release made for the record's kernel, target and toolchain; None if no job has tuned it here."""
        key = (record.workload_key, record.target_key, record.toolchain)
        if not self.toolchains(record.workload_key):
            return None
        if key not in self._spaces:
            row = self._repos.spaces.get(key[0], target_key=key[1], toolchain=key[2])
            self._spaces[key] = row if is_current(row) else None
        return self._spaces[key]


def _new_records(
    known: _Known,
    workload_key: str,
    records: Sequence[tuple[int, TuningRecord]],
    left_out: Counter[str],
    *,
    keep_unknown: bool,
) -> Iterator[TuningRecord]:
    toolchains = known.toolchains(workload_key)
    on_record = known.on_record(workload_key)
    held = {_measurement(record) for record in on_record}
    timed = {_timing(record) for record in on_record if record.samples_sec}
    for number, record in records:
        space = known.space_of(record)
        fits = space is not None and space.space_key == record.space_key
        if space is not None and fits and (reason := misfit(space.space, record.config)):
            raise InvalidRecordError(
                f"line {number}: the config is not in its kernel's config space: {clean(reason, 200)}",
                line=number,
            )
        if not keep_unknown and record.toolchain not in toolchains:
            left_out[UNKNOWN_WORKLOAD] += 1
        elif space is not None and not fits:
            left_out[SPACE_CHANGED] += 1
        elif _measurement(record) in held or (record.tuner == METASCHEDULE and _timing(record) in timed):
            left_out[ON_RECORD] += 1
        else:
            held.add(_measurement(record))
            yield record


def _measurement(record: TuningRecord) -> tuple[Any, ...]:
    """Return what no two measurements share: several equal samples, else the config with its sample, or with a failure's time."""
    if len(record.samples_sec) >= _SAMPLES_TELL:
        return _timing(record)
    return (*_timing(record), record.config, record.samples_sec or (record.outcome, record.measured_at))


def _timing(record: TuningRecord) -> tuple[Any, ...]:
    """Return the samples, and what they are of, without the config.

    Several configs may give one kernel: a record that went to MetaSchedule's database can come back with another config than it
    had. Of a single sample that is known only from what was on record before the import: two configs may take equally long.
    """
    return (
        record.target_key,
        record.device_model,
        record.toolchain,
        record.space_key,
        record.samples_sec,
    )


def _row(record: TuningRecord, owner: str | None) -> NewRecord:
    return NewRecord(
        workload_key=record.workload_key,
        target_key=record.target_key,
        device_model=record.device_model,
        toolchain=record.toolchain,
        space_key=record.space_key,
        config=record.config.to_json(),
        outcome=record.outcome.value,
        cost_sec=record.cost_sec,
        samples_sec=list(record.samples_sec),
        build_sec=record.build_sec,
        measured_at=record.measured_at,
        tuner=record.tuner,
        message=clean(record.message, _MESSAGE),
        extra=dict(record.extra),
        confirmed=record.confirmed,
        owner=owner,
        size_bytes=len(record.to_json()),
    )


def _check(record: TuningRecord) -> None:
    """Check values that the farm's own records always have.

    Raises:
        InvalidRecordError: If a text is empty, too long or unprintable, a number not finite, or a list too long.
    """
    for name, longest in _LONGEST.items():
        text = getattr(record, name)
        if len(text) > longest or not text.isprintable() or not (text or name == "tuner"):
            raise InvalidRecordError(f"{name} must be 1 to {longest} printable characters")
    numbers = (record.build_sec, record.measured_at)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise InvalidRecordError("build_sec and measured_at must be numbers from zero on")
    if record.measured_at > time.time() + _CLOCKS_APART_SEC:
        raise InvalidRecordError("measured_at is in the future")
    if not all(SHORTEST_SEC <= sample <= LONGEST_SEC for sample in record.samples_sec):
        raise InvalidRecordError("samples_sec must be seconds of a call, from a nanosecond to a day")
    if len(record.samples_sec) > _SAMPLES:
        raise InvalidRecordError(
            f"it has {len(record.samples_sec)} samples, and a record of the farm at most {_SAMPLES}: leave some out"
        )
    if len(record.config.key) > _JSON:
        raise InvalidRecordError(f"the config has more than {_JSON} characters")
    try:
        extra = json.dumps(dict(record.extra), allow_nan=False, ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError("extra has a number that is not finite, or is nested too deeply") from error
    if len(extra) > _JSON or UNSTORABLE.search(extra):
        raise InvalidRecordError("extra is too long, or has characters that cannot be stored")
