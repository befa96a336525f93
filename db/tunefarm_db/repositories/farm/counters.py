"""Counters: running totals for the metrics, so that no request counts all trials."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from enum import StrEnum

from sqlalchemy import and_, func, or_, select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import CounterRow, table_of

_COUNTERS = table_of(CounterRow)
_SLOTS = 16


class Counter(StrEnum):
    """A running total; each comment says what its labels are."""

    TRIALS = "trials"
    """Trials, by outcome."""
    BUILD_SEC = "build_sec"
    """Seconds of building them; no label."""
    MEASURE_SEC = "measure_sec"
    """Seconds of measuring them, by the device's id; empty if no device was reached."""
    DEVICE_OUTCOMES = "device_outcomes"
    """Trials, by the device's id and the outcome, separated by a blank."""
    LATE_WRITES = "late_writes"
    """Refused writes of workers that had lost their step, by kind of step."""
    DELIVERIES = "deliveries"
    """Attempts to deliver to a webhook, by result: delivered, retried, given-up."""


class Counters(Repository):
    """Totals. They are exact: a total grows in the transaction that writes the counted rows."""

    def add(self, name: Counter, amounts: Mapping[str, float], *, of: str) -> None:
        """Add to the counter's labels; see `add_all`."""
        self.add_all({name: amounts}, of=of)

    def add_all(self, amounts: Mapping[Counter, Mapping[str, float]], *, of: str) -> None:
        """Add to several counters in one statement.

        Args:
            amounts: Counter -> label -> how much.
            of: The source, for example a job's id: it chooses one of the rows that share a label's sum, so that two
                jobs that commit at once seldom wait for each other.
        """
        slot = zlib.crc32(of.encode()) % _SLOTS
        # In order: two transactions that lock the rows in different orders could deadlock.
        rows = [
            {"name": name.value, "label": label, "slot": slot, "value": amount}
            for name, labels in sorted(amounts.items())
            for label, amount in sorted(labels.items())
        ]
        if not rows:
            return
        insert = self._insert(_COUNTERS)
        statement = insert.on_conflict_do_update(
            index_elements=[_COUNTERS.c.name, _COUNTERS.c.label, _COUNTERS.c.slot],
            set_={"value": _COUNTERS.c.value + insert.excluded.value},
        )
        self._run(statement, rows)

    def all(self) -> dict[Counter, dict[str, float]]:
        """Return every sum, by counter and label."""
        query = select(CounterRow.name, CounterRow.label, func.sum(CounterRow.value)).group_by(
            CounterRow.name, CounterRow.label
        )
        sums: dict[Counter, dict[str, float]] = {counter: {} for counter in Counter}
        for row in self._run(query):
            name, label, value = row
            sums[Counter(name)][label] = float(value)
        return sums

    def of_device(self, device_id: str) -> tuple[float, dict[str, int]]:
        """Return the seconds that the device measured, and the number of its trials by outcome."""
        query = (
            select(CounterRow.name, CounterRow.label, func.sum(CounterRow.value))
            .where(
                or_(
                    and_(CounterRow.name == Counter.MEASURE_SEC, CounterRow.label == device_id),
                    and_(
                        CounterRow.name == Counter.DEVICE_OUTCOMES,
                        CounterRow.label.startswith(f"{device_id} ", autoescape=True),
                    ),
                )
            )
            .group_by(CounterRow.name, CounterRow.label)
        )
        measured_sec, outcomes = 0.0, {}
        for row in self._run(query):
            name, label, value = row
            if name == Counter.MEASURE_SEC:
                measured_sec = float(value)
            else:
                outcomes[label.partition(" ")[2]] = round(value)
        return measured_sec, outcomes
