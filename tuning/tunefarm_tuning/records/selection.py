"""Which records count: a config that was confirmed is judged by its newest confirmation alone.

The fastest of many noisy timings is too good to be true: it is the luckiest one. So the few best of a task are
measured again, side by side, before a winner is named, and those *confirming* records replace what the same
configs seemed to cost before.
"""

from __future__ import annotations

from collections.abc import Iterable

from tunefarm_tuning.records.record import TuningRecord

_Place = tuple[str, str, str, str]
_Key = tuple[str, str, str, str, str, str]


def standing(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Return the records that count, in the order given.

    Of a config (of a workload, target, device model, toolchain and space) that has confirming records, that is the
    one measured last, whether it went well or not; of any other config, all of its records.
    """
    given = list(records)
    newest: dict[_Key, int] = {}
    for position, record in enumerate(given):
        if not record.confirmed:
            continue
        held = newest.get(_key(record))
        if held is None or given[held].measured_at <= record.measured_at:
            newest[_key(record)] = position
    if not newest:
        return given
    return [r for position, r in enumerate(given) if newest.get(_key(r), position) == position]


def pick_best(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Return the fastest standing record of every (workload, target, device model, toolchain, space).

    A config that was confirmed counts by its newest confirming record alone (see `standing`). Of a workload that several
    releases tuned there is one for each of their spaces: which of them still is one, `compile` finds out.

    Source: ``autotvm.record.pick_best`` (TVM v0.19), which keyed by target and workload alone.
    """
    best: dict[tuple[str, ...], TuningRecord] = {}
    for record in standing(records):
        if record.cost_sec is None:
            continue
        key = (*_place(record), record.space_key)
        held = best.get(key)
        if held is None or record.cost_sec < (held.cost_sec or float("inf")):
            best[key] = record
    return list(best.values())


def fastest(records: Iterable[TuningRecord], n: int) -> list[TuningRecord]:
    """Return the fastest standing record of each of the `n` fastest configs, fastest first.

    Args:
        records: Of one workload, target, device model, toolchain and space.
        n: How many at most.
    """
    best: dict[str, TuningRecord] = {}
    for record in sorted(
        (r for r in standing(records) if r.cost_sec is not None), key=lambda r: (r.cost_sec, r.config.key)
    ):
        best.setdefault(record.config.key, record)
    return list(best.values())[:n]


def _place(record: TuningRecord) -> _Place:
    return (record.workload_key, record.target_key, record.device_model, record.toolchain)


def _key(record: TuningRecord) -> _Key:
    return (*_place(record), record.space_key, record.config.key)
