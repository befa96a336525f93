"""Triggers that log every lease and every commit of a step for an audit, since rows forget their earlier owners."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, text

_TABLE = """
CREATE TABLE lease_log (
  seq {serial}, what TEXT NOT NULL, subject TEXT NOT NULL, fence BIGINT NOT NULL, owner TEXT, beside INTEGER NOT NULL
)
"""
_SERIAL = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgresql": "BIGSERIAL PRIMARY KEY"}
# A lease is an UPDATE that raises the fence. It is beside another where somebody held the row, and his time was not over.
_HELD = {
    "steps": "OLD.state = 'leased' AND OLD.lease_until > {now}",
    "devices": "OLD.lease_owner IS NOT NULL AND OLD.lease_until > {now}",
}
_LEASED = "NEW.fence <> OLD.fence"
_RELEASED = "NEW.lease_owner IS NULL AND OLD.lease_owner IS NOT NULL"
_COMMITTED = "NEW.state = 'done' AND OLD.state <> 'done'"
_SQLITE_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_POSTGRESQL_NOW = "extract(epoch from statement_timestamp())"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLog:
    """The findings of an audit of leases and commits.

    Attributes:
        leases: How many leases of steps, and of devices, there were.
        overlapping: Those that were given while another one ran.
        committed_twice: Steps that were done more than once.
        out_of_turn: Rounds that were committed when somebody else had been given their device.
        side_by_side: Most rounds of one job that were at work at once.
    """

    leases: dict[str, int]
    overlapping: list[tuple[Any, ...]]
    committed_twice: list[str]
    out_of_turn: list[str]
    side_by_side: int


def install(engine: Engine) -> None:
    """Begin to write down, in this database."""
    with engine.begin() as connection:
        connection.exec_driver_sql(_TABLE.format(serial=_SERIAL[connection.dialect.name]))
        for table in ("steps", "devices"):
            _trigger(connection, f"{table}_lease", table, _LEASED, table, _HELD[table])
        _trigger(connection, "devices_release", "devices", _RELEASED, "release", "")
        _trigger(connection, "steps_commit", "steps", _COMMITTED, "commit", "")


def _trigger(connection: Connection, name: str, table: str, when: str, event: str, beside: str) -> None:
    sqlite = connection.dialect.name == "sqlite"
    held = beside.format(now=_SQLITE_NOW if sqlite else _POSTGRESQL_NOW) or "1 = 0"
    insert = (
        "INSERT INTO lease_log (what, subject, fence, owner, beside) "
        f"VALUES ('{event}', NEW.id, NEW.fence, NEW.lease_owner, CASE WHEN {held} THEN 1 ELSE 0 END);"
    )
    if sqlite:
        connection.exec_driver_sql(
            f"CREATE TRIGGER audit_{name} AFTER UPDATE ON {table} WHEN {when} BEGIN {insert} END"
        )
        return
    connection.exec_driver_sql(
        f"CREATE FUNCTION audit_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {insert} RETURN NULL; END $$"
    )
    connection.exec_driver_sql(
        f"CREATE TRIGGER audit_{name} AFTER UPDATE ON {table} FOR EACH ROW WHEN ({when}) "
        f"EXECUTE FUNCTION audit_{name}()"
    )


def read(engine: Engine) -> LeaseLog:
    """Return the log so far."""
    with engine.connect() as connection:

        def rows(columns: str, where: str) -> list[tuple[Any, ...]]:
            result = connection.execute(text(f"SELECT {columns} FROM lease_log WHERE {where}")).tuples().all()
            return [tuple(row) for row in result]

        leases = rows("what, count(*)", "what IN ('steps', 'devices') GROUP BY what")
        twice = rows("subject", "what = 'commit' GROUP BY subject HAVING count(*) > 1")
        order = _Order(connection)
        return LeaseLog(
            leases={event: int(number) for event, number in leases},
            overlapping=rows("what, subject, fence", "beside = 1"),
            committed_twice=[subject for (subject,) in twice],
            out_of_turn=order.out_of_turn,
            side_by_side=order.side_by_side,
        )


class _Order:
    """Follows the order of leases and commits.

    The row of a device is locked from its lease to the commit of who gives it back: the numbers are in that order.
    """

    def __init__(self, connection: Connection) -> None:
        self.out_of_turn: list[str] = []
        self.side_by_side = 0
        steps = connection.execute(text("SELECT id, job_id FROM steps")).tuples()
        self._jobs = {f"step:{step}": job for step, job in steps}
        self._holders: dict[str, str] = {}
        self._devices: dict[str, str] = {}
        for event, subject, owner in connection.execute(
            text("SELECT what, subject, owner FROM lease_log ORDER BY seq")
        ).tuples():
            self._follow(event, subject, owner)

    def _follow(self, event: str, subject: str, owner: str | None) -> None:
        if event == "devices":
            assert owner is not None
            self._holders[subject] = owner
            self._devices[owner] = subject
            at_work = Counter(job for holder in self._holders.values() if (job := self._jobs.get(holder)))
            self.side_by_side = max(self.side_by_side, *at_work.values(), 0)
        elif event == "release":
            self._holders.pop(subject, None)
        elif event == "commit":
            device = self._devices.get(f"step:{subject}")
            if device is not None and self._holders.get(device) != f"step:{subject}":
                self.out_of_turn.append(subject)
