"""Workloads: the computations that were found in models, by key and toolchain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

from sqlalchemy import select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import WorkloadRow, table_of
from tunefarm_db.values import Workload
from tunefarm_tuning.core.errors import NotFoundError

_WORKLOADS = table_of(WorkloadRow)


class Workloads(Repository):
    def add_many(self, workloads: Sequence[Workload]) -> None:
        """Store workloads; those that are there already stay as they are."""
        if workloads:
            self._run(self._insert(_WORKLOADS).on_conflict_do_nothing(), [asdict(w) for w in workloads])

    def get(self, key: str, toolchain: str) -> Workload:
        """Return a workload with its IR.

        Raises:
            NotFoundError: ``workload-not-found``.
        """
        query = select(_WORKLOADS).where(WorkloadRow.key == key, WorkloadRow.toolchain == toolchain)
        found = self._first(Workload, query)
        if found is None:
            raise NotFoundError("there is no such workload", code="workload-not-found", workload_key=key)
        return found

    def get_many(self, keys: Collection[str], toolchain: str) -> dict[str, Workload]:
        """Return the workloads that are stored, by key."""
        query = select(_WORKLOADS).where(
            WorkloadRow.key.in_(sorted(keys)), WorkloadRow.toolchain == toolchain
        )
        return {w.key: w for w in self._all(Workload, query)}

    def toolchains(self, key: str) -> tuple[str, ...]:
        """Return the toolchains under which this workload is stored."""
        query = select(WorkloadRow.toolchain).where(WorkloadRow.key == key).order_by(WorkloadRow.toolchain)
        return tuple(self._run(query).scalars())
