"""Tuning records: they stay when their job is deleted."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypedDict, Unpack

from sqlalchemy import (
    ColumnElement,
    FromClause,
    ScalarSelect,
    Select,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    union_all,
    update,
)

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository, checked_limit, equal, page_of
from tunefarm_db.tables import RecordRow, SpaceRow, table_of
from tunefarm_db.values import Json, NewRecord, Page, Record
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.outcome import Outcome

_RECORDS = table_of(RecordRow)
_FAST = _RECORDS.alias("fast")
_KEYS_PER_QUERY = 100  # SQLite takes at most 500 terms in a compound SELECT
KEY = ("workload_key", "target_key", "device_model", "toolchain")
"""Records of one key can be compared."""

_MEASURED = (*KEY, "space_key", "config", "outcome", "samples_sec", "build_sec", "measured_at")
_KEY_COLUMNS = tuple(_RECORDS.c[name] for name in KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """A filter of records; None means any value."""

    workload_key: str | None = None
    target_key: str | None = None
    device_model: str | None = None
    toolchain: str | None = None
    outcome: str | None = None
    job_id: str | None = None


class Platform(TypedDict):
    """Where a workload was measured: records of one workload on one platform can be compared."""

    target_key: str
    device_model: str
    toolchain: str


class Records(Repository):
    """Tuning records: the best configs of workloads by target, device model and toolchain."""

    def add_many(self, records: Sequence[NewRecord]) -> tuple[str, ...]:
        """Store records; return their ids, in order.

        A confirming record supersedes all others of its config, and one that comes later is superseded at once.
        """
        rows = [{"id": new_id("rec"), **asdict(r)} for r in records]
        self._supersede(rows)
        if rows:
            self._run(insert(_RECORDS), rows)
        return tuple(row["id"] for row in rows)

    def _supersede(self, rows: Sequence[dict[str, Any]]) -> None:
        """Mark the stored records and the rows that a confirming row supersedes."""
        rows_by_key: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in rows:
            row["superseded"] = False
            rows_by_key.setdefault(tuple(row[name] for name in KEY), []).append(row)
        groups = list(rows_by_key.items())  # an import may have any number of them
        for start in range(0, len(groups), _KEYS_PER_QUERY):
            self._supersede_in(groups[start : start + _KEYS_PER_QUERY])

    def _supersede_in(self, groups: Sequence[tuple[tuple[str, ...], list[dict[str, Any]]]]) -> None:
        """Do so for the rows of some workloads on some platforms."""
        where = [
            column.in_(sorted({values[position] for values, _ in groups}))
            for position, column in enumerate(_KEY_COLUMNS)
        ]
        # JSON has no equality on PostgreSQL; the few confirmed configs are compared here.
        query = select(*_KEY_COLUMNS, RecordRow.space_key, RecordRow.config)
        confirmed = {
            (*row[:-2], config_key(*row[-2:])) for row in self._run(query.where(*where, RecordRow.confirmed))
        }
        latest = {
            (*values, config_key(row["space_key"], row["config"])): row
            for values, rows in groups
            for row in rows
            if row["confirmed"]
        }
        for values, rows in groups:
            for row in rows:
                key = (*values, config_key(row["space_key"], row["config"]))
                row["superseded"] = latest.get(key, row) is not row or (
                    key in confirmed and not row["confirmed"]
                )
        if not latest:
            return
        spaces = sorted({row["space_key"] for row in latest.values()})
        held = query.add_columns(RecordRow.id).where(
            *where, RecordRow.space_key.in_(spaces), ~RecordRow.superseded
        )
        gone = [row[-1] for row in self._run(held) if (*row[:-3], config_key(*row[-3:-1])) in latest]
        for start in range(0, len(gone), _KEYS_PER_QUERY):
            some = gone[start : start + _KEYS_PER_QUERY]
            self._run(update(_RECORDS).where(RecordRow.id.in_(some)).values(superseded=True))

    def best(self, workload_keys: Collection[str], **platform: Unpack[Platform]) -> dict[str, Record]:
        """Return each workload's fastest record, by workload key; workloads without one are left out.

        A config that was confirmed counts by its newest confirming record. A record of an outdated config
        space does not count: its config cannot be applied. One index seek per workload, however many records there are,
        and one more query for each workload whose fastest record is of an outdated space.
        """
        keys = self._texts(set(workload_keys), "wanted")
        fastest = _id_of_fastest(keys.c.value, platform)
        query = select(_RECORDS).where(RecordRow.id.in_(select(fastest).select_from(keys)))
        best = {record.workload_key: record for record in self._all(Record, query)}
        current = select(SpaceRow.workload_key, SpaceRow.space_key).where(
            SpaceRow.workload_key.in_(select(self._texts(best, "best").c.value)),
            SpaceRow.target_key == platform["target_key"],
            SpaceRow.toolchain == platform["toolchain"],
        )
        for key, space_key in self._run(current).all() if best else ():
            if best[key].space_key != space_key:
                del best[key]
                for record in self.top(key, space_key=space_key, limit=1, **platform):
                    best[key] = record
        return best

    def best_costs(self, workload_keys: Collection[str], **platform: Unpack[Platform]) -> dict[str, float]:
        """Return the costs of the records that `best` returns, by workload key."""
        keys = self._texts(set(workload_keys), "wanted")
        fastest = _id_of_fastest(keys.c.value, platform)
        query = (
            select(RecordRow.workload_key, RecordRow.cost_sec, RecordRow.space_key, SpaceRow.space_key)
            .outerjoin(
                SpaceRow,
                (SpaceRow.workload_key == RecordRow.workload_key)
                & (SpaceRow.target_key == platform["target_key"])
                & (SpaceRow.toolchain == platform["toolchain"]),
            )
            .where(RecordRow.id.in_(select(fastest).select_from(keys)))
        )
        costs: dict[str, float] = {}
        for key, cost_sec, space_key, current in self._run(query).all():
            if current in (None, space_key):
                costs[key] = cost_sec
                continue
            for record in self.top(key, space_key=current, limit=1, **platform):
                assert record.cost_sec is not None
                costs[key] = record.cost_sec
        return costs

    def by_ids(self, record_ids: Collection[str]) -> dict[str, Record]:
        """Return records by id; missing ones are left out."""
        if not record_ids:
            return {}
        ids = self._texts(record_ids, "wanted")
        query = select(_RECORDS).where(RecordRow.id.in_(select(ids.c.value)))
        return {record.id: record for record in self._all(Record, query)}

    def best_page(
        self, wanted: RecordFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page[Record]:
        """Return the fastest standing record of each workload, target, device model and toolchain, ordered by these.

        Only records that match count. One index seek per key, however many records there are.

        Raises:
            InvalidInputError: If the cursor did not come from here.
        """
        limit = checked_limit(limit)
        wanted = wanted or RecordFilter()
        after = None if cursor is None else [literal(value) for value in self._key_of(cursor)]
        first = select(_RECORDS).where(RecordRow.id == _first_after(wanted, after))
        best = first.cte("best", recursive=True)
        # The recursion seeks from key to key inside the database; one query per key cost more than all seeks.
        following = _RECORDS.alias("following")
        at = [best.c[name] for name in KEY]
        best = best.union_all(
            select(following).join_from(best, following, following.c.id == _first_after(wanted, at))
        )
        # No ORDER BY: the rows come in this order, and only as many as the caller reads.
        page = _matching(select(best), replace(wanted, outcome=None, job_id=None), best.c)
        return page_of(self._all(Record, page.limit(limit + 1)), limit, lambda record: record.id)

    def _key_of(self, record_id: str) -> tuple[str, ...]:
        row = self._run(select(*_KEY_COLUMNS).where(RecordRow.id == record_id)).first()
        if row is None:
            raise InvalidInputError("the cursor is not one that this list gave out", code="invalid-cursor")
        return tuple(row)

    def top_of(
        self,
        workload_keys: Collection[str],
        *,
        limit: int,
        **platform: Unpack[Platform],
    ) -> dict[str, tuple[Record, ...]]:
        """Return each workload's fastest standing records, fastest first; workloads without one are left out."""
        records_by_key: dict[str, list[Record]] = {}
        keys = sorted(set(workload_keys))
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            seeks = [
                # The subquery around each seek is for SQLite, which otherwise allows no LIMIT inside a UNION.
                select(_standing(_RECORDS, key, platform).limit(limit).subquery(f"w{number}"))
                for number, key in enumerate(keys[start : start + _KEYS_PER_QUERY])
            ]
            statement = seeks[0] if len(seeks) == 1 else union_all(*seeks)
            for record in self._all(Record, statement):
                records_by_key.setdefault(record.workload_key, []).append(record)
        return {
            key: tuple(sorted(records, key=lambda r: (r.cost_sec, r.id)))
            for key, records in records_by_key.items()
        }

    def top(
        self,
        workload_key: str,
        *,
        space_key: str | None = None,
        limit: int = 8,
        **platform: Unpack[Platform],
    ) -> tuple[Record, ...]:
        """Return one workload's fastest standing records, fastest first."""
        query = _standing(_RECORDS, workload_key, platform)
        query = query.where(*equal(_RECORDS.c, space_key=space_key))
        return self._all(Record, query.limit(checked_limit(limit)))

    def possible_winners(
        self,
        workload_keys: Collection[str],
        *,
        limit: int,
        **platform: Unpack[Platform],
    ) -> dict[str, tuple[Record, ...]]:
        """Return each workload's candidates for the winner: the fastest standing records, and all standing confirming ones."""
        winners = {
            key: {record.id: record for record in records}
            for key, records in self.top_of(workload_keys, limit=limit, **platform).items()
        }
        keys = sorted(set(workload_keys))
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            query = select(_RECORDS).where(
                RecordRow.workload_key.in_(keys[start : start + _KEYS_PER_QUERY]),
                *equal(_RECORDS.c, **platform),
                RecordRow.confirmed,
                ~RecordRow.superseded,
            )
            for record in self._all(Record, query):
                winners.setdefault(record.workload_key, {})[record.id] = record
        return {key: tuple(records.values()) for key, records in winners.items()}

    def history_ids(
        self,
        workload_key: str,
        *,
        space_key: str | None = None,
        except_job: str | None = None,
        limit: int = 1000,
        **platform: Unpack[Platform],
    ) -> tuple[str, ...]:
        """Return the ids of a workload's newest standing records, failures included, newest first.

        A tuner learns from them. Records of the job `except_job` are left out and do not count towards `limit`.
        """
        wanted = equal(_RECORDS.c, workload_key=workload_key, space_key=space_key, **platform)
        query = select(RecordRow.id).where(*wanted, ~RecordRow.superseded)
        if except_job is not None:
            query = query.where(or_(RecordRow.job_id.is_(None), RecordRow.job_id != except_job))
        return tuple(self._run(query.order_by(RecordRow.id.desc()).limit(limit)).scalars())

    def for_job(self, job_id: str) -> tuple[Record, ...]:
        """Return all records that the job measured, oldest first."""
        return self._all(Record, select(_RECORDS).where(RecordRow.job_id == job_id).order_by(RecordRow.id))

    def recorded(self, workload_keys: Collection[str]) -> set[str]:
        """Return those of the workloads that have records."""
        key = self._texts(workload_keys, "wanted").c.value
        return set(self._run(select(key).where(exists().where(RecordRow.workload_key == key))).scalars())

    def measurements(self, workload_keys: Collection[str]) -> list[Json]:
        """Return what was measured of workloads, as the JSON values of `TuningRecord`; an import looks for its own there."""
        columns = [_RECORDS.c[name] for name in _MEASURED]
        wanted = select(self._texts(workload_keys, "wanted").c.value)
        rows = self._run(select(*columns).where(RecordRow.workload_key.in_(wanted)))
        return [dict(zip(_MEASURED, row, strict=True)) for row in rows]

    def query(
        self,
        wanted: RecordFilter | None = None,
        *,
        workload_keys: Collection[str] | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Record]:
        """Return the matching records, newest first; if workload keys are given, only theirs."""
        query = _matching(select(_RECORDS), wanted or RecordFilter(), _RECORDS.c)
        if workload_keys is not None:
            query = query.where(
                RecordRow.workload_key.in_(select(self._texts(workload_keys, "wanted").c.value))
            )
        return self._page(Record, query, RecordRow.id, cursor=cursor, limit=limit)


def _matching(query: Select[Any], wanted: RecordFilter, columns: Any) -> Select[Any]:
    query = query.where(*equal(columns, **asdict(wanted)))
    if wanted.outcome not in (None, Outcome.OK):
        query = query.where(text("outcome != 'ok'"))  # spelled as in the partial index
    return query


def _first_after(wanted: RecordFilter, after: Sequence[ColumnElement[str]] | None) -> ColumnElement[str]:
    """Return the id of the fastest standing record of the key that follows this one."""
    names = [_FAST.c[name] for name in KEY]
    query = select(_FAST.c.id).where(_FAST.c.cost_sec.is_not(None), ~_FAST.c.superseded)
    # Of the key's columns only the first can be filtered here: the index is ordered by it.
    by_index = {name: getattr(wanted, name) for name in ("workload_key", "outcome", "job_id")}
    query = query.where(*equal(_FAST.c, **by_index)).order_by(*names, _FAST.c.cost_sec).limit(1)
    if after is None:
        return query.scalar_subquery()
    # Another toolchain of the same workload, target and device model; or another device model; and so on. As one comparison
    # of rows SQLite seeks by the first column alone, and reads on through all records of the workload.
    seeks = [
        query.where(
            *(name == value for name, value in zip(names[:same], after[:same], strict=True)),
            names[same] > after[same],
        ).scalar_subquery()
        for same in reversed(range(len(names)))
    ]
    return func.coalesce(*seeks)


def _standing(table: FromClause, workload_key: str | ColumnElement[str], platform: Platform) -> Select[Any]:
    """Return a query for the standing records with this key, fastest first. `table`: the table of records or its alias."""
    # These two must be spelled as in the partial index, or it is not used.
    standing = (table.c.cost_sec.is_not(None), ~table.c.superseded)
    key = equal(table.c, workload_key=workload_key, **platform)
    return select(table).where(*key, *standing).order_by(table.c.cost_sec)


def _id_of_fastest(workload_key: ColumnElement[str], platform: Platform) -> ScalarSelect[str]:
    """Return a subquery: the id of the fastest standing record of another table's workload."""
    query = _standing(_FAST, workload_key, platform)
    return query.with_only_columns(_FAST.c.id).limit(1).scalar_subquery()


def config_key(space_key: str, config: list[Any]) -> tuple[str, str]:
    """Return a key of a config: JSON has no equality on PostgreSQL."""
    return space_key, json.dumps(config)
