"""Workloads, by key and toolchain, and their config spaces, by target."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

from sqlalchemy import JSON, select, type_coerce

from tunefarm_db.repositories.base import Repository, equal
from tunefarm_db.tables import SpaceRow, WorkloadRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, Space, Workload
from tunefarm_tuning.core.errors import NotFoundError

_WORKLOADS = table_of(WorkloadRow)


class Workloads(Repository):
    """Workloads: the IR of kernels, by key and toolchain."""

    def add_many(self, workloads: Sequence[Workload]) -> None:
        """Store workloads; existing ones stay as they are."""
        if workloads:
            self._run(self._insert(_WORKLOADS).on_conflict_do_nothing(), [asdict(w) for w in workloads])

    def get(self, key: str, toolchain: str) -> Workload:
        """Return a workload with its IR.

        Raises:
            NotFoundError: ``workload-not-found``.
        """
        query = select(_WORKLOADS).where(WorkloadRow.key == key, WorkloadRow.toolchain == toolchain)
        missing = NotFoundError("there is no such workload", code="workload-not-found", workload_key=key)
        return self._required(Workload, query, missing)

    def get_many(self, keys: Collection[str], toolchain: str) -> dict[str, Workload]:
        """Return those of the workloads that are stored, by key."""
        query = select(_WORKLOADS).where(
            WorkloadRow.key.in_(sorted(keys)), WorkloadRow.toolchain == toolchain
        )
        return {w.key: w for w in self._all(Workload, query)}

    def known(self, keys: Collection[str], toolchain: str) -> set[str]:
        """Return those of the keys whose workloads are stored."""
        return {key for key, toolchains in self.toolchains(keys).items() if toolchain in toolchains}

    def toolchains(self, keys: Collection[str]) -> dict[str, list[str]]:
        """Return the toolchains under which each of these workloads is stored, in order, by key; without those that are not stored."""
        wanted = select(self._texts(keys, "wanted").c.value)
        query = select(WorkloadRow.key, WorkloadRow.toolchain).where(WorkloadRow.key.in_(wanted))
        toolchains: dict[str, list[str]] = {}
        for key, toolchain in sorted(self._run(query).tuples()):  # here: PostgreSQL's order is its locale's
            toolchains.setdefault(key, []).append(toolchain)
        return toolchains


_SPACES = table_of(SpaceRow)


class Spaces(Repository):
    """Config spaces of workloads, by target and toolchain."""

    def put(self, space: Space) -> None:
        """Store the config space of a workload on a target; an earlier one is replaced."""
        values = asdict(space)
        changes = {name: values[name] for name in ("space", "space_key", "family", "extents", "revision")}
        self._run(
            self._insert(_SPACES)
            .values({**values, "created_at": db_now()})
            .on_conflict_do_update(index_elements=["workload_key", "target_key", "toolchain"], set_=changes)
        )

    def get(self, workload_key: str, *, target_key: str, toolchain: str) -> Space | None:
        key = equal(_SPACES.c, workload_key=workload_key, target_key=target_key, toolchain=toolchain)
        return self._first(Space, select(_SPACES).where(*key))

    def computations(
        self, workload_keys: Collection[str], *, target_key: str, toolchain: str
    ) -> dict[str, Json]:
        """Return the computations in the spaces of these workloads (`Computation.to_json`), by workload key."""
        computation = type_coerce(SpaceRow.space, JSON)["computation"]
        query = select(SpaceRow.workload_key, computation).where(
            SpaceRow.workload_key.in_(sorted(workload_keys)),
            SpaceRow.target_key == target_key,
            SpaceRow.toolchain == toolchain,
        )
        return {
            key: computation_json
            for key, computation_json in self._run(query)
            if isinstance(computation_json, dict)
        }
