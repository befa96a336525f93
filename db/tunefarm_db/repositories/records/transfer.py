"""Transfer: records of other tasks that a task can learn from. Every query has a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select, tuple_, union

from tunefarm_db.repositories.base import Repository, equal
from tunefarm_db.repositories.records.records import KEY, Records
from tunefarm_db.tables import RecordRow, SpaceRow, table_of
from tunefarm_tuning.records.transfer import distance

_MAX_OUTLINES = 500  # spaces compared by distance: three short columns each
_MAX_CANDIDATES = 64  # the nearest of them, whose records are searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The ids of one history's records, oldest first: one workload on one target, device model and toolchain.

    Neither records nor a space of the same key ever change, so they can be cached.
    """

    workload_key: str
    target_key: str
    device_model: str
    toolchain: str
    space_key: str
    record_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """Limits: histories of each kind, and records of each history."""

    same_workload: int = 3
    same_workload_records: int = 160
    same_family: int = 8
    same_family_records: int = 96
    others: int = 3
    others_records: int = 40


_Platform = tuple[str, str, str]  # target key, device model, toolchain


class Transfer(Repository):
    """Records and trials of like workloads, from which a search can learn."""

    def outlines(
        self,
        workload_key: str,
        *,
        target_key: str,
        device_model: str,
        toolchain: str,
        family: str,
        extents: Sequence[int],
        limits: HistoryLimits | None = None,
    ) -> tuple[Outline, ...]:
        """Return the histories of all jobs that a task can learn from, the most similar first.

        First the same workload as measured elsewhere (another target, device model or toolchain); then, measured in
        the task's own platform, workloads of the same family, the nearest in size first; then some of other families.
        Of each the fastest standing records are taken, and the oldest: those were tried before a model knew what is
        good, and so are of all kinds.
        """
        limits = limits or HistoryLimits()
        here = (target_key, device_model, toolchain)
        histories = [
            (workload_key, platform, limits.same_workload_records)
            for platform in self._platforms(workload_key, limits.same_workload + 1)
            if platform != here
        ]
        spaces = self._space_keys(histories)
        histories = [
            history for history in histories if (history[0], history[1][0], history[1][2]) in spaces
        ][: limits.same_workload]
        for is_family, most, num_records in (
            (True, limits.same_family, limits.same_family_records),
            (False, limits.others, limits.others_records),
        ):
            candidates = self._candidates(workload_key, here, family, extents, is_family)
            on_record = Records(self._connection).best_costs(
                list(candidates), target_key=target_key, device_model=device_model, toolchain=toolchain
            )
            for key in [key for key in candidates if key in on_record][:most]:
                spaces[key, target_key, toolchain] = candidates[key]
                histories.append((key, here, num_records))
        outlines = [
            self._outline(key, platform, spaces[key, platform[0], platform[2]], num_records)
            for key, platform, num_records in histories
        ]
        return tuple(outline for outline in outlines if outline.record_ids)

    def _platforms(self, workload_key: str, most: int) -> list[_Platform]:
        """Return where the workload was measured: one index seek per platform."""
        columns = (RecordRow.target_key, RecordRow.device_model, RecordRow.toolchain)
        platforms: list[_Platform] = []
        while len(platforms) < most:
            query = select(*columns).where(RecordRow.workload_key == workload_key).order_by(*columns).limit(1)
            if platforms:
                query = query.where(tuple_(*columns) > platforms[-1])
            row = self._run(query).first()
            if row is None:
                break
            platforms.append((row[0], row[1], row[2]))
        return platforms

    def _space_keys(self, wanted: Sequence[tuple[str, _Platform, int]]) -> dict[tuple[str, str, str], str]:
        """Return the stored space keys, by workload, target and toolchain."""
        if not wanted:
            return {}
        query = select(SpaceRow.target_key, SpaceRow.toolchain, SpaceRow.space_key).where(
            SpaceRow.workload_key == wanted[0][0]
        )
        return {(wanted[0][0], row[0], row[1]): row[2] for row in self._run(query)}

    def _candidates(
        self, workload_key: str, here: _Platform, family: str, extents: Sequence[int], is_family: bool
    ) -> dict[str, str]:
        """Return the space keys of other workloads on the target: the nearest first in the family, else the newest."""
        if is_family and not family:
            return {}
        of_family: ColumnElement[bool] = SpaceRow.family == family
        query = select(SpaceRow.workload_key, SpaceRow.space_key, SpaceRow.extents).where(
            SpaceRow.target_key == here[0],
            SpaceRow.toolchain == here[2],
            SpaceRow.workload_key != workload_key,
        )
        if is_family:
            query = query.where(of_family).order_by(SpaceRow.workload_key).limit(_MAX_OUTLINES)
            near = sorted((distance(extents, row[2]), row[0], row[1]) for row in self._run(query))
            return {key: space_key for _, key, space_key in near[:_MAX_CANDIDATES]}
        if family:
            query = query.where(SpaceRow.family != family)
        query = query.order_by(SpaceRow.created_at.desc(), SpaceRow.workload_key).limit(_MAX_CANDIDATES)
        return {row[0]: row[1] for row in self._run(query)}

    def _outline(self, workload_key: str, platform: _Platform, space_key: str, most: int) -> Outline:
        key = dict(zip(KEY, (workload_key, *platform), strict=True))
        records = equal(table_of(RecordRow).c, **key, space_key=space_key)
        ids = select(RecordRow.id).where(*records, ~RecordRow.superseded)
        fastest = ids.where(RecordRow.cost_sec.is_not(None)).order_by(RecordRow.cost_sec).limit(most // 2)
        oldest = ids.order_by(RecordRow.id).limit(most - most // 2)
        # Subqueries for SQLite, which otherwise allows no LIMIT inside a UNION.
        both = union(select(fastest.subquery("fastest")), select(oldest.subquery("oldest")))
        record_ids = tuple(sorted(row[0] for row in self._run(both)))
        return Outline(**key, space_key=space_key, record_ids=record_ids)
