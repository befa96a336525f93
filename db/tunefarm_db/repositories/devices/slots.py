"""Usage and vitals of devices by the minute: the data of a device's charts.

A slot is a minute wide. `DeviceSlots.fold` merges fifteen older slots into one (`COARSE_SEC`), so a device that runs for
a year costs some ten thousand small rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, case, delete, exists, func, select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import DeviceRow, DeviceSlotRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import DeviceInterval

_SLOTS = table_of(DeviceSlotRow)
_Row = DeviceSlotRow

FINE_SEC = 60
COARSE_SEC = 900
_LONGEST_USE_SEC = 86_400.0
"""A longer lease means that a clock jumped."""

_SUMS = ("work_sec", "calibration_sec", "measured_sec", "beats")
_MEANS = ("load", "clock_mhz")


class DeviceSlots(Repository):
    """Slots of devices.

    Concurrency: writers lock the device's row first, so that no two transactions wait for each other's slots.
    """

    def use(self, device_id: str, began_at: float | None, until: float, **shares: float) -> None:
        """Add a lease to the slots that it overlaps.

        Args:
            device_id: The device.
            began_at: When it began, by the database's clock; None if that is unknown.
            until: When it ended.
            **shares: Its share (0 to 1) of ``work_sec``, ``calibration_sec`` and ``measured_sec``.
        """
        if began_at is None:
            return
        began_at = max(began_at, until - _LONGEST_USE_SEC)
        self._merge(
            {"device_id": device_id, "slot_at": at, **{name: sec * share for name, share in shares.items()}}
            for at, sec in parts(began_at, until, FINE_SEC)
        )

    def beat(self, device_id: str, vitals: Mapping[str, float | None]) -> None:
        """Count a heartbeat, with its vitals: ``load``, ``temperature_celsius``, ``clock_mhz``."""
        now = float(self._run(select(db_now())).scalar_one())
        at = int(now // FINE_SEC) * FINE_SEC
        self._merge([{"device_id": device_id, "slot_at": at, "beats": 1, **vitals}])

    def intervals(self, device_id: str, *, since: int, until: float, width_sec: int) -> list[DeviceInterval]:
        """Return the device's intervals of `width_sec` from `since` (a multiple of it) to `until`, empty ones included."""
        begin = (_Row.slot_at - _Row.slot_at % width_sec).label("begin")
        query = (
            select(
                begin,
                *(func.sum(_SLOTS.c[name]).label(name) for name in _SUMS),
                *(_mean(_SLOTS.c[name]).label(name) for name in _MEANS),
                func.max(_Row.temperature_celsius).label("temperature_celsius"),
            )
            .where(_Row.device_id == device_id, _Row.slot_at >= since, _Row.slot_at < until)
            .group_by(begin)
        )
        rows = {row["begin"]: row for row in self._run(query).mappings()}
        intervals = []
        for at in range(since, int(until) + 1, width_sec):
            empty = DeviceInterval(at=at, sec=min(width_sec, until - at))
            row = rows.get(at)
            values = {} if row is None else {name: value for name, value in row.items() if name != "begin"}
            intervals.append(replace(empty, **values))
        return intervals

    def devices(self, *, after: str, limit: int) -> tuple[str, ...]:
        """Return the ids of devices that have slots, removed ones included, in order; only ids after `after`."""
        has_any = exists().where(_Row.device_id == DeviceRow.id)
        query = select(DeviceRow.id).where(DeviceRow.id > after, has_any).order_by(DeviceRow.id).limit(limit)
        return tuple(self._run(query).scalars())

    def fold(self, device_id: str, age_sec: float) -> int:
        """Merge the minute slots older than `age_sec` into wide ones; return how many were merged."""
        self._run(select(DeviceRow.id).where(DeviceRow.id == device_id).with_for_update())
        now = float(self._run(select(db_now())).scalar_one())
        before = int((now - age_sec) // COARSE_SEC) * COARSE_SEC
        gone = self._run(
            delete(_SLOTS)
            .where(_Row.device_id == device_id, _Row.slot_at < before, _Row.width_sec < COARSE_SEC)
            .returning(_SLOTS)
        ).mappings()
        wide = [
            {**row, "slot_at": row["slot_at"] - row["slot_at"] % COARSE_SEC, "width_sec": COARSE_SEC}
            for row in gone
        ]
        self._merge(wide)
        return len(wide)

    def forget(self, device_id: str, age_sec: float) -> int:
        """Delete the device's older slots; return how many."""
        old = delete(_SLOTS).where(_Row.device_id == device_id, _Row.slot_at < db_now() - age_sec)
        return int(self._run(old).rowcount)

    def _merge(self, rows: Iterable[Mapping[str, Any]]) -> None:
        empty: dict[str, Any] = {
            "width_sec": FINE_SEC,
            **dict.fromkeys(_SUMS, 0),
            **dict.fromkeys(_MEANS),
            "temperature_celsius": None,
        }
        slots = [{**empty, **row} for row in rows]
        if not slots:
            return
        insert = self._insert(_SLOTS)
        new = insert.excluded
        statement = insert.on_conflict_do_update(
            index_elements=[_SLOTS.c.device_id, _SLOTS.c.slot_at],
            set_={
                **{name: _SLOTS.c[name] + new[name] for name in _SUMS},
                **{name: _merged_mean(_SLOTS.c[name], new[name], new["beats"]) for name in _MEANS},
                "temperature_celsius": _merged_most(_Row.temperature_celsius, new["temperature_celsius"]),
            },
        )
        self._run(statement, slots)


def parts(began_at: float, until: float, width_sec: int) -> list[tuple[int, float]]:
    """Return the slots between `began_at` and `until`, with the seconds of that time in each."""
    at = int(began_at // width_sec) * width_sec
    slots = []
    while at < until:
        sec = min(until, at + width_sec) - max(began_at, at)
        if sec > 0.0:
            slots.append((at, sec))
        at += width_sec
    return slots


def _mean(column: Any) -> ColumnElement[Any]:
    beats = case((column.is_not(None), _Row.beats), else_=0)
    return func.sum(column * _Row.beats) / func.nullif(func.sum(beats), 0)


def _merged_mean(old: Any, new: Any, new_beats: Any) -> ColumnElement[Any]:
    """Return the mean of both, weighted by heartbeats."""
    both = (old * _Row.beats + new * new_beats) / func.nullif(_Row.beats + new_beats, 0)
    return case((new.is_(None), old), (old.is_(None), new), else_=both)


def _merged_most(old: Any, new: Any) -> ColumnElement[Any]:
    return case((new.is_(None), old), (old.is_(None), new), (new > old, new), else_=old)
