"""What an owner uses of the farm: bytes, open jobs, time of search. Counted from the rows, so that nothing can drift."""

from __future__ import annotations

from sqlalchemy import delete, func, insert, or_, select, union_all, update

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.states.job import OPEN_STATES
from tunefarm_db.tables import (
    ApiKeyRow,
    JobRow,
    ModelRow,
    RecordRow,
    ReservedBytesRow,
    SampleFileRow,
    StepRow,
    UploadRow,
    table_of,
)
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Job, ModelState, StepKind, StepState, UploadState

_JOBS = table_of(JobRow)
_RESERVED = table_of(ReservedBytesRow)


class Usage(Repository):
    """What owners use, and what is reserved for them."""

    def size_bytes(self, owner: str) -> int:
        """Return the bytes that an owner's models, samples and imported records take, and those reserved for running uploads.

        A file counts once, however many models were made of it.
        """
        files = (
            select(ModelRow.sha256, ModelRow.size_bytes)
            .where(ModelRow.owner == owner, ModelRow.state != ModelState.DELETED)
            .union(select(SampleFileRow.sha256, SampleFileRow.size_bytes).where(SampleFileRow.owner == owner))
            .subquery()
        )
        keys = select(ApiKeyRow.id).where(or_(ApiKeyRow.id == owner, ApiKeyRow.account == owner))
        uploads = select(func.coalesce(func.sum(UploadRow.size_bytes), 0)).where(
            UploadRow.api_key_id.in_(keys),
            UploadRow.state == UploadState.OPEN,
            UploadRow.expires_at > db_now(),
        )
        reserved = select(func.coalesce(func.sum(ReservedBytesRow.size_bytes), 0)).where(
            ReservedBytesRow.owner == owner, ReservedBytesRow.expires_at > db_now()
        )
        stored = select(func.coalesce(func.sum(files.c.size_bytes), 0))
        imported = select(func.coalesce(func.sum(RecordRow.size_bytes), 0)).where(RecordRow.owner == owner)
        return sum(int(size) for size in self._run(union_all(stored, uploads, reserved, imported)).scalars())

    def reserve_bytes(self, owner: str, size_bytes: int, *, keep_sec: float) -> str:
        """Reserve bytes for an upload; return the reservation's id. It ends by itself after `keep_sec`."""
        self._run(delete(_RESERVED).where(ReservedBytesRow.expires_at < db_now()))
        reservation = new_id("rsv")
        row = {"id": reservation, "owner": owner, "size_bytes": size_bytes}
        self._run(insert(_RESERVED).values(**row, expires_at=db_now() + keep_sec))
        return reservation

    def renew_bytes(self, reservation: str, *, keep_sec: float) -> None:
        """Let a reservation last for `keep_sec` from now."""
        self._run(
            update(_RESERVED).where(ReservedBytesRow.id == reservation).values(expires_at=db_now() + keep_sec)
        )

    def release_bytes(self, reservation: str) -> None:
        """End a reservation."""
        self._run(delete(_RESERVED).where(ReservedBytesRow.id == reservation))

    def open_jobs(self, owner: str) -> tuple[Job, ...]:
        """Return an owner's jobs that have not ended."""
        query = select(_JOBS).where(JobRow.owner == owner, JobRow.state.in_(sorted(OPEN_STATES)))
        return self._all(Job, query)

    def open_measurements(self, owner: str) -> int:
        """Return how many artifacts are being measured again for an owner, or wait for it."""
        query = select(func.count()).where(
            StepRow.state.in_((StepState.READY, StepState.LEASED)),
            StepRow.kind == StepKind.MEASURE,
            StepRow.asked_by == owner,
        )
        return int(self._run(query).scalar_one())

    def searched_sec(self, owner: str, within_sec: float) -> float:
        """Return the seconds of search of an owner's jobs that ended in the last `within_sec`."""
        query = select(func.coalesce(func.sum(JobRow.tuned_sec), 0.0)).where(
            JobRow.owner == owner,
            JobRow.state.not_in(sorted(OPEN_STATES)),
            func.coalesce(JobRow.finished_at, JobRow.created_at) > db_now() - within_sec,
        )
        return float(self._run(query).scalar_one())
