"""What is on record elsewhere that a task can learn from. Every query is bounded, however much there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select, tuple_

from tunefarm_db.repositories.base import Repository
from tunefarm_db.repositories.records import Records
from tunefarm_db.repositories.spaces import Spaces
from tunefarm_db.tables import RecordRow, SpaceRow, table_of
from tunefarm_db.values import Record, Space
from tunefarm_tuning.nearness import distance

_RECORDS = table_of(RecordRow)

_MAX_OUTLINES = 500  # spaces looked at for nearness: three short columns each
_MAX_CANDIDATES = 64  # of these, the nearest whose records are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Records of one workload on one target, device model and toolchain, oldest first, and their space."""

    space: Space
    device_model: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """How much of each kind is read: histories, and records of each."""

    same_workload: int = 3
    same_workload_records: int = 160
    same_family: int = 8
    same_family_records: int = 96
    others: int = 3
    others_records: int = 40


class Transfer(Repository):
    def histories(
        self,
        workload_key: str,
        *,
        target_key: str,
        device_model: str,
        toolchain: str,
        family: str,
        extents: Sequence[int],
        limits: HistoryLimits | None = None,
    ) -> tuple[History, ...]:
        """Return what a task can learn from, of whatever jobs, the most alike first.

        First the same workload as measured elsewhere (another target, device model or toolchain); then, measured in
        the task's own place, workloads of the same family, the nearest in size first; then some of other families.
        Of each the fastest standing records are taken, and the oldest: those were tried before a model knew what is
        good, and so are of all kinds.
        """
        limits = limits or HistoryLimits()
        here = (target_key, device_model, toolchain)
        found = [
            self._history(space, place[1], limits.same_workload_records)
            for place in self._places(workload_key, limits.same_workload + 1)
            if place != here and (space := self._space(workload_key, place[0], place[2])) is not None
        ][: limits.same_workload]
        for is_family, most, num_records in (
            (True, limits.same_family, limits.same_family_records),
            (False, limits.others, limits.others_records),
        ):
            candidates = self._candidates(workload_key, target_key, toolchain, family, extents, is_family)
            on_record = Records(self._connection).best(
                candidates, target_key=target_key, device_model=device_model, toolchain=toolchain
            )
            for key in [key for key in candidates if key in on_record][:most]:
                space = self._space(key, target_key, toolchain)
                if space is not None:
                    found.append(self._history(space, device_model, num_records))
        return tuple(history for history in found if history.records)

    def _places(self, workload_key: str, most: int) -> list[tuple[str, str, str]]:
        """Return where the workload was measured: one seek in the index for each place."""
        columns = (RecordRow.target_key, RecordRow.device_model, RecordRow.toolchain)
        places: list[tuple[str, str, str]] = []
        while len(places) < most:
            query = select(*columns).where(RecordRow.workload_key == workload_key).order_by(*columns).limit(1)
            if places:
                query = query.where(tuple_(*columns) > places[-1])
            row = self._run(query).first()
            if row is None:
                break
            places.append((row[0], row[1], row[2]))
        return places

    def _candidates(
        self,
        workload_key: str,
        target_key: str,
        toolchain: str,
        family: str,
        extents: Sequence[int],
        is_family: bool,
    ) -> list[str]:
        """Return other workloads with a space on the target, the nearest first; of other families the newest."""
        if is_family and not family:
            return []
        of_family: ColumnElement[bool] = SpaceRow.family == family
        query = select(SpaceRow.workload_key, SpaceRow.extents).where(
            SpaceRow.target_key == target_key,
            SpaceRow.toolchain == toolchain,
            SpaceRow.workload_key != workload_key,
        )
        if is_family:
            query = query.where(of_family).order_by(SpaceRow.workload_key).limit(_MAX_OUTLINES)
            near = sorted((distance(extents, row[1]), row[0]) for row in self._run(query))
            return [key for _, key in near[:_MAX_CANDIDATES]]
        if family:
            query = query.where(SpaceRow.family != family)
        query = query.order_by(SpaceRow.created_at.desc(), SpaceRow.workload_key).limit(_MAX_CANDIDATES)
        return [row[0] for row in self._run(query)]

    def _space(self, workload_key: str, target_key: str, toolchain: str) -> Space | None:
        return Spaces(self._connection).get(workload_key, target_key=target_key, toolchain=toolchain)

    def _history(self, space: Space, device_model: str, most: int) -> History:
        fastest = Records(self._connection).top(
            space.workload_key,
            target_key=space.target_key,
            device_model=device_model,
            toolchain=space.toolchain,
            space_key=space.space_key,
            limit=most // 2,
        )
        oldest = self._all(
            Record,
            select(_RECORDS)
            .where(
                RecordRow.workload_key == space.workload_key,
                RecordRow.target_key == space.target_key,
                RecordRow.device_model == device_model,
                RecordRow.toolchain == space.toolchain,
                RecordRow.space_key == space.space_key,
                ~RecordRow.superseded,
            )
            .order_by(RecordRow.id)
            .limit(most - most // 2),
        )
        both = {record.id: record for record in (*fastest, *oldest)}
        records = tuple(both[record_id] for record_id in sorted(both))
        return History(space=space, device_model=device_model, records=records)
