"""What devices did by the minute, and how they were: what charts of a device are drawn from.

A slot is a minute wide. `DeviceSlots.fold` makes one of fifteen of the older ones, so that a device that beats for a year
costs some ten thousand small rows (`COARSE_SEC`, and the retention of the caller).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, case, delete, exists, func, select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import DeviceRow, DeviceSlotRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values.device_history import DeviceInterval

_SLOTS = table_of(DeviceSlotRow)
_Row = DeviceSlotRow

FINE_SEC = 60
COARSE_SEC = 900
_LONGEST_USE_SEC = 86_400.0
"""More than that in one go is a clock that jumped."""

_SUMS = ("work_sec", "calibration_sec", "measured_sec", "beats")
_MEANS = ("load", "clock_mhz")


class DeviceSlots(Repository):
    """Whoever writes holds the device's row in the same transaction, so that no two wait for each other's slots."""

    def use(self, device_id: str, began_at: float | None, until: float, **shares: float) -> None:
        """Count what a lease was for.

        Args:
            device_id: The device.
            began_at: When it began, by the database's clock; None where nobody noted that.
            until: When it ended.
            **shares: Which of ``work_sec``, ``calibration_sec`` and ``measured_sec`` it was, and in what part.
        """
        if began_at is None:
            return
        began_at = max(began_at, until - _LONGEST_USE_SEC)
        self._add(
            {
                "device_id": device_id,
                "slot_at": at,
                **{name: sec * share for name, share in shares.items()},
            }
            for at, sec in parts(began_at, until, FINE_SEC)
        )

    def beat(self, device_id: str, vitals: Mapping[str, float | None]) -> None:
        """Note a sign of life of now, and what it told: ``load``, ``temperature_celsius``, ``clock_mhz``."""
        now = float(self._run(select(db_now())).scalar_one())
        at = int(now // FINE_SEC) * FINE_SEC
        self._add([{"device_id": device_id, "slot_at": at, "beats": 1, **vitals}])

    def intervals(self, device_id: str, *, since: int, until: float, width_sec: int) -> list[DeviceInterval]:
        """Return what it did in each stretch of `width_sec` from `since` (a multiple of it) until now, all of them."""
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
        found = {row["begin"]: row for row in self._run(query).mappings()}
        shown = []
        for at in range(since, int(until) + 1, width_sec):
            empty = DeviceInterval(at=at, sec=min(width_sec, until - at))
            row = found.get(at)
            values = {} if row is None else {name: value for name, value in row.items() if name != "begin"}
            shown.append(replace(empty, **values))
        return shown

    def devices(self, *, after: str, limit: int) -> tuple[str, ...]:
        """Return the ids of devices with slots in order, removed ones included, from the one behind `after` on."""
        has_any = exists().where(_Row.device_id == DeviceRow.id)
        query = select(DeviceRow.id).where(DeviceRow.id > after, has_any).order_by(DeviceRow.id).limit(limit)
        return tuple(self._run(query).scalars())

    def fold(self, device_id: str, age_sec: float) -> int:
        """Make wide slots of the narrow ones that are older than `age_sec`; return how many went."""
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
        self._add(wide)
        return len(wide)

    def forget(self, device_id: str, age_sec: float) -> int:
        """Delete the device's slots that are older; return how many."""
        old = delete(_SLOTS).where(_Row.device_id == device_id, _Row.slot_at < db_now() - age_sec)
        return int(self._run(old).rowcount)

    def _add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        empty: dict[str, Any] = {
            "width_sec": FINE_SEC,
            **dict.fromkeys(_SUMS, 0),
            **dict.fromkeys(_MEANS),
            "temperature_celsius": None,
        }
        given = [{**empty, **row} for row in rows]
        if not given:
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
        self._run(statement, given)


def parts(began_at: float, until: float, width_sec: int) -> list[tuple[int, float]]:
    """Return the slots that the time from `began_at` to `until` is in, and how many seconds of it each holds."""
    at = int(began_at // width_sec) * width_sec
    found = []
    while at < until:
        sec = min(until, at + width_sec) - max(began_at, at)
        if sec > 0.0:
            found.append((at, sec))
        at += width_sec
    return found


def _mean(column: Any) -> ColumnElement[Any]:
    told = case((column.is_not(None), _Row.beats), else_=0)
    return func.sum(column * _Row.beats) / func.nullif(func.sum(told), 0)


def _merged_mean(old: Any, new: Any, new_beats: Any) -> ColumnElement[Any]:
    """Return the mean of both, by how many signs of life each is of."""
    both = (old * _Row.beats + new * new_beats) / func.nullif(_Row.beats + new_beats, 0)
    return case((new.is_(None), old), (old.is_(None), new), else_=both)


def _merged_most(old: Any, new: Any) -> ColumnElement[Any]:
    return case((new.is_(None), old), (old.is_(None), new), (new > old, new), else_=old)
