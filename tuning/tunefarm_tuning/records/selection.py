"""Selection of records: of a confirmed config only the newest confirmation counts.

The fastest of many noisy timings is too good to be true: it is the luckiest one. So before a winner is named, the few
best configs of a task are measured again, side by side. These *confirming* records supersede the earlier records of the
same configs.
"""

from __future__ import annotations

from collections.abc import Iterable

from tunefarm_tuning.records.record import TuningRecord

_Setting = tuple[str, str, str, str]
_ConfigKey = tuple[str, str, str, str, str, str]


def without_superseded(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Return the records that count, in the order given.

    A config (of a workload, target, device model, toolchain and space) that has confirming records counts by the newest
    of them alone, whether that measurement succeeded or failed. Of any other config all records count.
    """
    all_records = list(records)
    newest: dict[_ConfigKey, int] = {}
    for position, record in enumerate(all_records):
        if not record.confirmed:
            continue
        held = newest.get(_config_key(record))
        if held is None or all_records[held].measured_at <= record.measured_at:
            newest[_config_key(record)] = position
    if not newest:
        return all_records
    return [
        record
        for position, record in enumerate(all_records)
        if newest.get(_config_key(record), position) == position
    ]


def pick_best(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Return the fastest record of every workload, target, device model, toolchain and space.

    A confirmed config counts only with its newest confirming record. A workload that several releases have tuned has
    one best record for each release's space; `compile` takes the newest whose space still exists. Failed trials are
    never returned.

    Source: ``autotvm.record.pick_best`` (TVM v0.19), which keyed by target and workload alone.
    """
    best: dict[tuple[str, ...], TuningRecord] = {}
    for record in without_superseded(records):
        if record.cost_sec is None:
            continue
        key = (*_setting(record), record.space_key)
        held = best.get(key)
        if held is None or record.cost_sec < (held.cost_sec or float("inf")):
            best[key] = record
    return list(best.values())


def fastest(records: Iterable[TuningRecord], n: int) -> list[TuningRecord]:
    """Return the fastest record of each of the `n` fastest configs of one setting and space, fastest first, without superseded ones."""
    best: dict[str, TuningRecord] = {}
    for record in sorted(
        (record for record in without_superseded(records) if record.cost_sec is not None),
        key=lambda record: (record.cost_sec, record.config.key),
    ):
        best.setdefault(record.config.key, record)
    return list(best.values())[:n]


def _setting(record: TuningRecord) -> _Setting:
    """Return the setting for which a record is valid."""
    return (record.workload_key, record.target_key, record.device_model, record.toolchain)


def _config_key(record: TuningRecord) -> _ConfigKey:
    return (*_setting(record), record.space_key, record.config.key)
