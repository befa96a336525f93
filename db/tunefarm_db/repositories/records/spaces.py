"""Config spaces: what the configs on record are points of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict

from sqlalchemy import JSON, select, type_coerce

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import SpaceRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, Space

_SPACES = table_of(SpaceRow)


class Spaces(Repository):
    def put(self, space: Space) -> None:
        """Store a space, in place of the one that the workload had on the target."""
        values = asdict(space)
        changes = {name: values[name] for name in ("space", "space_key", "family", "extents", "revision")}
        self._run(
            self._insert(_SPACES)
            .values({**values, "created_at": db_now()})
            .on_conflict_do_update(index_elements=["workload_key", "target_key", "toolchain"], set_=changes)
        )

    def get(self, workload_key: str, *, target_key: str, toolchain: str) -> Space | None:
        return self._first(
            Space,
            select(_SPACES).where(
                SpaceRow.workload_key == workload_key,
                SpaceRow.target_key == target_key,
                SpaceRow.toolchain == toolchain,
            ),
        )

    def computations(
        self, workload_keys: Collection[str], *, target_key: str, toolchain: str
    ) -> dict[str, Json]:
        """Return what the spaces say of what their workloads compute (`Computation.to_json`), by workload key."""
        computation = type_coerce(SpaceRow.space, JSON)["computation"]
        query = select(SpaceRow.workload_key, computation).where(
            SpaceRow.workload_key.in_(sorted(workload_keys)),
            SpaceRow.target_key == target_key,
            SpaceRow.toolchain == toolchain,
        )
        return {key: found for key, found in self._run(query) if isinstance(found, dict)}
