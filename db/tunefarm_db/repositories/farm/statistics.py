"""Statistics: the farm's present state in a few queries over open rows. No query reads the history."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import and_, case, func, select, text

from tunefarm_db.repositories.base import Repository
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import DeviceRow, JobRow, StepRow
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import DeviceState, Json, StepKind, StepState

MAX_DEVICES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSteps:
    """The steps of one kind that are ready, or that are leased.

    Attributes:
        oldest_sec: Age of the oldest of them, since it was planned.
        overdue_sec: Time since the oldest due step became due; 0 if none is due.
        sent_sec: How long ago the oldest of them was handed to a worker: an upper bound of a lease's age.
        lease_left_sec: Until the first lease ends, unless it is renewed; None of ready ones.
    """

    kind: StepKind
    state: StepState
    count: int
    oldest_sec: float
    overdue_sec: float
    sent_sec: float
    lease_left_sec: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """The fields of a device that the metrics need. `lease_left_sec` is None while nobody holds it.

    `info` and `calibration` are as in `Device`; the agent's statements in them are not checked.
    """

    id: str
    name: str
    device_key: str
    state: DeviceState
    seen_sec: float
    lease_left_sec: float | None
    info: Json
    calibration: Json | None


class Statistics(Repository):
    """Queries of the present state; ages are by the database's clock."""

    def open_steps(self) -> tuple[OpenSteps, ...]:
        """Return a summary of open steps per kind and state; pairs without steps are left out."""
        due = case((StepRow.not_before <= db_now(), StepRow.not_before))
        query = (
            select(
                StepRow.kind,
                StepRow.state,
                func.count().label("count"),
                (db_now() - func.min(StepRow.created_at)).label("oldest_sec"),
                func.coalesce(db_now() - func.min(due), 0.0).label("overdue_sec"),
                (db_now() - func.min(func.coalesce(StepRow.sent_at, StepRow.created_at))).label("sent_sec"),
                (func.min(StepRow.lease_until) - db_now()).label("lease_left_sec"),
            )
            .where(StepRow.state.in_([StepState.READY, StepState.LEASED]))
            .group_by(StepRow.kind, StepRow.state)
        )
        return self._all(OpenSteps, query)

    def jobs_by_state(self) -> dict[JobState, int]:
        """Return the number of jobs per state, from an index; states without jobs are left out."""
        query = select(JobRow.state, func.count()).group_by(JobRow.state)
        return {row[0]: row[1] for row in self._run(query)}

    def devices(self) -> tuple[DeviceHealth, ...]:
        """Return the devices that were not removed, at most `MAX_DEVICES`."""
        held = and_(DeviceRow.lease_owner.is_not(None), DeviceRow.lease_until > db_now())
        query = (
            select(
                DeviceRow.id,
                DeviceRow.name,
                DeviceRow.device_key,
                DeviceRow.state,
                (db_now() - DeviceRow.last_seen_at).label("seen_sec"),
                case((held, DeviceRow.lease_until - db_now())).label("lease_left_sec"),
                DeviceRow.info,
                DeviceRow.calibration,
            )
            .where(DeviceRow.state != DeviceState.REMOVED)
            .order_by(DeviceRow.name)
            .limit(MAX_DEVICES)
        )
        return self._all(DeviceHealth, query)

    def database_bytes(self) -> int:
        """Return the size of the database on its disk, for SQLite without the journal."""
        if self._connection.dialect.name == "sqlite":
            query = text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        else:
            query = text("SELECT pg_database_size(current_database())")
        return int(self._run(query).scalar_one())
