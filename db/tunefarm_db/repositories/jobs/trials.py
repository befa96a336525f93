"""Trials: every config that a job scheduled, and its outcome."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from sqlalchemy import Select, func, insert, or_, select, text, tuple_, union_all

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository, checked_limit, equal, page_of
from tunefarm_db.repositories.devices.slots import DeviceSlots
from tunefarm_db.repositories.farm.counters import Counter, Counters
from tunefarm_db.tables import DeviceRow, TrialRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import NewTrial, Page, Trial
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.outcome import Outcome

_TRIALS = table_of(TrialRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The fields of a trial that a tuner needs."""

    asked_key: str
    config_key: str
    outcome: str
    cost_sec: float | None
    run_sec: float


class Trials(Repository):
    """Trials of jobs: each measured candidate and its outcome."""

    def add_many(
        self,
        job_id: str,
        round: int,  # noqa: A002
        trials: Sequence[NewTrial],
        *,
        device_id: str | None = None,
    ) -> tuple[str, ...]:
        """Store and count a round's trials; return their ids, in order. `device_id` is the device that measured them.

        Raises:
            ConflictError: If the round, or one of the configs of its task, was stored before (infrastructure
                errors do not count as the config's).
        """
        rows = [{"id": new_id("trl"), "job_id": job_id, "round": round, **asdict(t)} for t in trials]
        if rows:
            self._run(insert(_TRIALS), rows)
            amounts: dict[Counter, Mapping[str, float]] = {
                Counter.BUILD_SEC: {"": sum(t.build_sec for t in trials)},
                Counter.MEASURE_SEC: {device_id or "": sum(t.run_sec for t in trials)},
                Counter.TRIALS: Tally(t.outcome for t in trials),
            }
            if device_id is not None:
                amounts[Counter.DEVICE_OUTCOMES] = Tally(f"{device_id} {t.outcome}" for t in trials)
                self._count_use(device_id, sum(t.run_sec for t in trials))
            Counters(self._connection).add_all(amounts, of=job_id)
        return tuple(row["id"] for row in rows)

    def _count_use(self, device_id: str, run_sec: float) -> None:
        """Add the seconds of measuring to the slots of the present lease, evenly over its time."""
        held = select(DeviceRow.leased_at, db_now()).where(
            DeviceRow.id == device_id, DeviceRow.lease_owner.is_not(None)
        )
        row = self._run(
            held.with_for_update()
        ).first()  # a heartbeat locks device and slot in this order, too
        if row is None or row[0] is None:
            return
        share = min(run_sec / max(row[1] - row[0], 1e-6), 1.0)
        DeviceSlots(self._connection).use(device_id, row[0], row[1], measured_sec=share)

    def page(
        self,
        job_id: str,
        *,
        position: int | None = None,
        outcome: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Trial]:
        """Return the job's trials in the order they were made.

        Raises:
            InvalidInputError: If the cursor did not come from here.
        """
        limit = checked_limit(limit)
        query: Select[tuple[Trial]] = (
            select(_TRIALS).where(TrialRow.job_id == job_id).order_by(TrialRow.round, TrialRow.ordinal)
        )
        query = query.where(*equal(_TRIALS.c, position=position, outcome=outcome))
        if cursor is not None:
            query = query.where(tuple_(TrialRow.round, TrialRow.ordinal) > _parse_cursor(cursor))
        trials = self._all(Trial, query.limit(limit + 1))
        return page_of(trials, limit, lambda trial: f"{trial.round}-{trial.ordinal}")

    def of_task(self, job_id: str, position: int) -> tuple[Trial, ...]:
        """Return all trials of one task in order."""
        query = select(_TRIALS).where(TrialRow.job_id == job_id, TrialRow.position == position)
        return self._all(Trial, query.order_by(TrialRow.round, TrialRow.ordinal))

    def tried(self, job_id: str, position: int) -> tuple[Tried, ...]:
        """Return the trials of `of_task` with only the fields that a tuner needs: every round reads them."""
        of_task = select(
            TrialRow.round, TrialRow.ordinal, *(_TRIALS.c[field.name] for field in fields(Tried))
        ).where(TrialRow.job_id == job_id, TrialRow.position == position)
        # Two queries, each spelled as one of the partial indexes: one query would scan all trials of the job.
        both = union_all(
            of_task.where(text("outcome != 'infrastructure-error'")),
            of_task.where(text("outcome = 'infrastructure-error'")),
        )
        rows = sorted(self._run(both), key=lambda row: (row[0], row[1]))
        return tuple(
            Tried(asked_key=row[2], config_key=row[3], outcome=row[4], cost_sec=row[5], run_sec=row[6])
            for row in rows
        )

    def known(self, job_id: str, position: int, config_keys: Sequence[str]) -> frozenset[str]:
        """Return which of these configs were tried; infrastructure errors do not count."""
        query = select(TrialRow.config_key).where(
            TrialRow.job_id == job_id,
            TrialRow.position == position,
            TrialRow.config_key.in_(list(config_keys)),
            text("outcome != 'infrastructure-error'"),  # spelled as in the index, so that it is used
        )
        return frozenset(self._run(query).scalars())

    def met(self, job_id: str, position: int, keys: Sequence[str]) -> frozenset[str]:
        """Return which of these configs were tried, as asked or as applied; infrastructure errors do not count."""
        query = select(TrialRow.asked_key, TrialRow.config_key).where(
            TrialRow.job_id == job_id,
            TrialRow.position == position,
            or_(TrialRow.asked_key.in_(list(keys)), TrialRow.config_key.in_(list(keys))),
            text("outcome != 'infrastructure-error'"),  # spelled as in the index, so that it is used
        )
        return frozenset(key for row in self._run(query) for key in row) & frozenset(keys)

    def losses_in_a_row(self, job_id: str) -> int:
        """Return how many of the job's trials in a row lost their device, up to the newest.

        Trials that were only queued on the device have no run time, and are not counted.
        """
        infrastructure = TrialRow.outcome == Outcome.INFRASTRUCTURE_ERROR
        ended = (
            select(TrialRow.round)
            .where(TrialRow.job_id == job_id, ~infrastructure)
            .order_by(TrialRow.round.desc())
            .limit(1)
        )
        query = (
            select(func.count())
            .select_from(TrialRow)
            .where(
                TrialRow.job_id == job_id,
                TrialRow.round > func.coalesce(ended.scalar_subquery(), -1),
                infrastructure,
                TrialRow.run_sec > 0.0,
            )
        )
        return int(self._run(query).scalar_one())

    def outcomes(self, job_id: str) -> dict[int, dict[str, int]]:
        """Return the number of trials by task position and outcome."""
        query = (
            select(TrialRow.position, TrialRow.outcome, func.count())
            .where(TrialRow.job_id == job_id)
            .group_by(TrialRow.position, TrialRow.outcome)
            .order_by(TrialRow.position, TrialRow.outcome)
        )
        counts: dict[int, dict[str, int]] = {}
        for row in self._run(query):
            position, outcome, count = row
            counts.setdefault(position, {})[outcome] = count
        return counts


def _parse_cursor(cursor: str) -> tuple[int, int]:
    first, _, second = cursor.partition("-")
    if not (first.isdecimal() and second.isdecimal() and len(cursor) < 20):
        raise InvalidInputError("the cursor is not one that this list gave out", code="invalid-cursor")
    return int(first), int(second)
