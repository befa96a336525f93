"""Networks that searches compiled with their kernels so far, and their latencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict, Unpack

from sqlalchemy import ColumnElement, and_, delete, func, select, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import JobRow, NetworkTimingRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, NetworkTiming

_TIMINGS = table_of(NetworkTimingRow)
_JOBS = table_of(JobRow)


class NewNetwork(TypedDict):
    """The columns of a network that was compiled; see `NetworkTiming`."""

    sha256: str
    inputs_sha256: str
    size_bytes: int
    name: str
    tasks: int
    covered: int
    began_sec: float
    costs: Json
    expected_sec: float
    error: Json | None
    envelope: NotRequired[str | None]


class TimedNetwork(TypedDict):
    """The columns of a timing; see `NetworkTiming`."""

    latency_sec: float
    low_sec: float | None
    high_sec: float | None
    quiet: bool | None
    device_id: str
    device: str
    tuned_sec: float
    spent_sec: float


class NetworkTimings(Repository):
    """Networks of a job by number, oldest first. The newest alone is timed: one that waits when the next is compiled is not."""

    def add(self, job_id: str, number: int, **columns: Unpack[NewNetwork]) -> None:
        """Store a network that was compiled; its blobs must be in `Blobs` already. Storing it again changes nothing."""
        values = {"job_id": job_id, "number": number, **columns}
        self._run(self._insert(_TIMINGS).values(**values).on_conflict_do_nothing())
        self._run(
            delete(_TIMINGS).where(
                NetworkTimingRow.job_id == job_id, NetworkTimingRow.number < number, _waits()
            )
        )

    def of(self, job_id: str) -> tuple[NetworkTiming, ...]:
        """Return all networks of a job."""
        query = select(_TIMINGS).where(NetworkTimingRow.job_id == job_id)
        return self._all(NetworkTiming, query.order_by(NetworkTimingRow.number))

    def of_jobs(self, job_ids: Sequence[str]) -> dict[str, list[NetworkTiming]]:
        """Return the networks of these jobs, by the job."""
        query = select(_TIMINGS).where(NetworkTimingRow.job_id.in_(list(job_ids)))
        by_job: dict[str, list[NetworkTiming]] = {}
        for network in self._all(NetworkTiming, query.order_by(NetworkTimingRow.number)):
            by_job.setdefault(network.job_id, []).append(network)
        return by_job

    def begin(self, job_id: str, number: int, *, most_tries: int, within_sec: float) -> bool:
        """Claim the timing of a network for so many seconds; return whether nobody else has it, and it was not tried too often."""
        statement = update(_TIMINGS).where(
            _is(job_id, number),
            _waits(),
            NetworkTimingRow.tries < most_tries,
            NetworkTimingRow.not_before <= db_now(),
        )
        values = {"tries": NetworkTimingRow.tries + 1, "not_before": db_now() + within_sec}
        return self._run(statement.values(**values)).rowcount == 1

    def note(self, job_id: str, number: int, **columns: Unpack[TimedNetwork]) -> None:
        """Store how fast a network is; its files are not needed any more."""
        values = {**columns, "timed_at": db_now()}
        self._run(update(_TIMINGS).where(_is(job_id, number), _waits()).values(**values))

    def fail(self, job_id: str, number: int, error: Json, *, spent_sec: float) -> None:
        """Store why a network cannot be timed, and what finding that out took."""
        values = {"error": error, "spent_sec": spent_sec}
        self._run(update(_TIMINGS).where(_is(job_id, number), _waits()).values(**values))

    def purge_device(self, device_id: str) -> tuple[str, ...]:
        """Delete what a device timed, and show the best that is left; return the jobs.

        The latency of an artifact stays: its compile measured it.
        """
        theirs = NetworkTimingRow.device_id == device_id
        job_ids = tuple(sorted(set(self._run(select(NetworkTimingRow.job_id).where(theirs)).scalars())))
        self._run(delete(_TIMINGS).where(theirs))
        best = (
            select(func.min(NetworkTimingRow.latency_sec))
            .where(NetworkTimingRow.job_id == JobRow.id)
            .scalar_subquery()
        )
        self._run(
            update(_JOBS)
            .where(JobRow.id.in_(job_ids), JobRow.state != JobState.SUCCEEDED)
            .values(network_latency_sec=best)
        )
        return job_ids


def _is(job_id: str, number: int) -> ColumnElement[bool]:
    return and_(NetworkTimingRow.job_id == job_id, NetworkTimingRow.number == number)


def _waits() -> ColumnElement[bool]:
    return and_(NetworkTimingRow.latency_sec.is_(None), NetworkTimingRow.error.is_(None))
