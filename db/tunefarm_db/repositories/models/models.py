"""Models and their tuning tasks."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Text,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from tunefarm_db.acting import acting
from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Order, Repository, equal, has_tag, has_text
from tunefarm_db.tables import (
    ModelRow,
    ModelTaskRow,
    WorkloadRow,
    table_of,
)
from tunefarm_db.values import Json, Model, ModelState, ModelTask, Page
from tunefarm_tuning.core.errors import ConflictError, NotFoundError
from tunefarm_tuning.core.untrusted_text import clean

_MODELS = table_of(ModelRow)
_TASKS = table_of(ModelTaskRow)
_VERSIONS_LOCK = 0x76657273  # "vers": our number among PostgreSQL's advisory locks for names of models


class ModelOrder(StrEnum):
    """The orders of a list of models; equal models are sorted newest first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"
    STATE = "state"
    SIZE = "size"


def _order(key: ColumnElement[Any], *, largest_first: bool = False) -> Order:
    return Order(id=_MODELS.c.id, tables=_MODELS, key=key, largest_first=largest_first)


_ORDERS: Mapping[ModelOrder, Order] = {
    ModelOrder.NEWEST: _order(_MODELS.c.id, largest_first=True),
    ModelOrder.OLDEST: _order(_MODELS.c.id),
    ModelOrder.NAME: _order(func.lower(_MODELS.c.name)),
    ModelOrder.STATE: _order(cast(_MODELS.c.state, Text)),
    ModelOrder.SIZE: _order(_MODELS.c.size_bytes, largest_first=True),
}


class Models(Repository):
    """Models and their tuning tasks."""

    def add(
        self,
        *,
        name: str,
        sha256: str,
        size_bytes: int,
        shapes: Mapping[str, Sequence[int] | str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Model:
        """Add a model in state importing: the next version of its name, deleted ones counted.

        Raises:
            ConflictError: If a model that is not deleted has the same bytes, shapes and values (found at once).
        """
        if (
            self._connection.dialect.name == "postgresql"
        ):  # SQLite lets in one writer; here each would take the same version
            self._run(select(func.pg_advisory_xact_lock(_VERSIONS_LOCK, func.hashtext(name))))
        newest = select(func.coalesce(func.max(ModelRow.version), 0)).where(ModelRow.name == name)
        row = {
            "id": new_id("mdl"),
            "name": name,
            "version": newest.scalar_subquery() + 1,
            "sha256": sha256,
            "size_bytes": size_bytes,
            "shapes": _as_json(shapes),
            "values": dict(values or {}),
            "shapes_key": shapes_key(shapes, values),
            "state": ModelState.IMPORTING,
            "inputs": [],
            "outputs": [],
            "operators": [],
            "owner": acting().owner,
        }
        return self._add(Model, _MODELS, row)

    def find(
        self,
        sha256: str,
        shapes: Mapping[str, Sequence[int] | str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Model | None:
        """Return the model with these bytes, shapes and values, in any state but deleted."""
        return self._first(
            Model,
            select(_MODELS).where(
                ModelRow.sha256 == sha256,
                ModelRow.shapes_key == shapes_key(shapes, values),
                ModelRow.state != ModelState.DELETED,
            ),
        )

    def get(self, model_id: str, *, deleted: bool = False) -> Model:
        """Return a model; a deleted one only if `deleted`.

        Raises:
            NotFoundError: ``model-not-found``, or ``model-deleted`` unless `deleted`.
        """
        missing = NotFoundError(
            f"there is no such model: {clean(model_id, 100)}", code="model-not-found", model_id=model_id
        )
        model = self._required(Model, select(_MODELS).where(ModelRow.id == model_id), missing)
        if model.state is ModelState.DELETED and not deleted:
            raise NotFoundError(
                f"the model {clean(model.name, 100)} was deleted: upload its file again",
                code="model-deleted",
                model_id=model_id,
            )
        return model

    def names(self, model_ids: Collection[str]) -> dict[str, str]:
        """Return the names of models by their ids, of deleted ones too."""
        rows = self._run(select(ModelRow.id, ModelRow.name).where(ModelRow.id.in_(sorted(set(model_ids)))))
        return {str(model_id): str(name) for model_id, name in rows}

    def unbound(self, of: Model) -> tuple[Model, ...]:
        """Return the owner's models with the file and the name of `of` that failed for want of shapes or values, newest version first."""
        query = select(_MODELS).where(
            ModelRow.sha256 == of.sha256, ModelRow.name == of.name, ModelRow.state == ModelState.FAILED
        )
        models = self._all(Model, query.order_by(ModelRow.version.desc()))
        return tuple(model for model in models if model.needs_binding and model.owner == of.owner)

    def take_version(self, model_id: str, of: Model) -> None:
        """Give a model the version of a deleted one, whose place it takes."""
        self._run(
            update(_MODELS)
            .where(ModelRow.id == model_id, ModelRow.name == of.name)
            .values(version=of.version, updated_at=ModelRow.updated_at)
        )

    def list(
        self,
        *,
        state: ModelState | None = None,
        tags: Collection[str] = (),
        text: str = "",
        order: ModelOrder = ModelOrder.NEWEST,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Model]:
        """Return models in an order.

        Args:
            state: Only models in this state; deleted ones only when asked for so.
            tags: Only models with all of these tags.
            text: Only models with this text in their id, name, note or a tag, in any case.
            order: The order.
            cursor: Id of the last model of the page before.
            limit: Most to return.
        """
        where = [ModelRow.state == state if state is not None else ModelRow.state != ModelState.DELETED]
        where += [has_tag(_MODELS.c.tags, tag) for tag in tags]
        if text:
            where.append(has_text(text, (_MODELS.c.id, _MODELS.c.name, _MODELS.c.note), _MODELS.c.tags))
        query = select(_MODELS).where(*where)
        return self._sorted_page(Model, query, _ORDERS[order], cursor=cursor, limit=limit)

    def label(self, model_id: str, *, tags: Sequence[str] | None = None, note: str | None = None) -> Model:
        """Set the tags or the note of a model that is not deleted; None leaves them.

        Raises:
            NotFoundError: ``model-not-found`` or ``model-deleted``.
        """
        # The time of the last change stays: nothing of the network has changed.
        values: dict[str, Any] = {"updated_at": ModelRow.updated_at}
        values |= {"tags": list(tags)} if tags is not None else {}
        values |= {"note": note} if note is not None else {}
        self._run(
            update(_MODELS)
            .where(ModelRow.id == model_id, ModelRow.state != ModelState.DELETED)
            .values(**values)
        )
        return self.get(model_id)

    def set_ready(
        self,
        model_id: str,
        *,
        inputs: Sequence[Json],
        outputs: Sequence[Json],
        operators: Sequence[Sequence[Any]],
        opset: int,
        num_params: int,
        specialisations: Sequence[Json] = (),
        parts: Sequence[Json] = (),
    ) -> Model:
        """Importing -> ready.

        Raises:
            ConflictError: If the model is in another state.
        """
        return self._move(
            model_id,
            ModelState.IMPORTING,
            ModelState.READY,
            error=None,
            inputs=list(inputs),
            outputs=list(outputs),
            operators=[list(pair) for pair in operators],
            opset=opset,
            num_params=num_params,
            specialisations=list(specialisations),
            parts=list(parts),
        )

    def set_failed(self, model_id: str, error: Json, *, revision: int = 0) -> Model:
        """Importing -> failed; stores the importer's revision.

        Raises:
            ConflictError: If the model is in another state.
        """
        return self._move(model_id, ModelState.IMPORTING, ModelState.FAILED, error=error, revision=revision)

    def set_importing(self, model_id: str) -> Model:
        """Failed -> importing: try again. Raises `ConflictError` if the model is in another state."""
        return self._move(model_id, ModelState.FAILED, ModelState.IMPORTING, error=None)

    def delete(self, model_id: str) -> Model:
        """Any state -> deleted. The row stays, because jobs and records refer to it.

        Raises:
            NotFoundError: If there is no such model, or it is deleted already.
        """
        model = self.get(model_id)
        return self._move(model_id, model.state, ModelState.DELETED)

    def _move(self, model_id: str, expected: ModelState, to: ModelState, **changes: Any) -> Model:
        model = self._first(
            Model,
            update(_MODELS)
            .where(ModelRow.id == model_id, ModelRow.state == expected)
            .values(state=to, **changes)
            .returning(_MODELS),
        )
        if model is None:
            present = self.get(model_id, deleted=True).state
            raise ConflictError(
                f"the model is {present}, so it cannot become {to}", code="model-state", state=present.value
            )
        return model

    def set_tasks(
        self,
        model_id: str,
        *,
        pipeline: str,
        toolchain: str,
        tasks: Sequence[tuple[str, int]],
        alternatives: Mapping[str, Json] | None = None,
        revision: int = 0,
    ) -> None:
        """Replace the model's tasks for this pipeline and toolchain.

        Args:
            model_id: The model.
            pipeline: ``"cpu"`` or ``"gpu"``.
            toolchain: The toolchain that made the workloads.
            tasks: (workload key, weight), in order. The workloads must be stored already.
            alternatives: The kernels that tasks are alternatives to, by the tasks' workload keys.
            revision: Revision of the graph passes.
        """
        self._run(
            delete(_TASKS).where(
                ModelTaskRow.model_id == model_id,
                ModelTaskRow.pipeline == pipeline,
                ModelTaskRow.toolchain == toolchain,
            )
        )
        rows = [
            {
                "model_id": model_id,
                "pipeline": pipeline,
                "toolchain": toolchain,
                "position": position,
                "workload_key": workload_key,
                "weight": weight,
                "alternative": (alternatives or {}).get(workload_key),
                "revision": revision,
            }
            for position, (workload_key, weight) in enumerate(tasks)
        ]
        if rows:
            self._run(insert(_TASKS), rows)

    def tasks(
        self,
        model_id: str,
        *,
        pipeline: str | None = None,
        toolchain: str | None = None,
        revision: int | None = None,
    ) -> tuple[ModelTask, ...]:
        """Return the model's tasks, filtered by pipeline and toolchain if given; empty before the first extraction."""
        query = (
            select(_TASKS, WorkloadRow.name, WorkloadRow.flops, WorkloadRow.args)
            .join(
                table_of(WorkloadRow),
                (WorkloadRow.key == ModelTaskRow.workload_key)
                & (WorkloadRow.toolchain == ModelTaskRow.toolchain),
            )
            .where(ModelTaskRow.model_id == model_id)
            .order_by(ModelTaskRow.pipeline, ModelTaskRow.toolchain, ModelTaskRow.position)
        )
        wanted = equal(_TASKS.c, pipeline=pipeline, toolchain=toolchain, revision=revision)
        return self._all(ModelTask, query.where(*wanted))

    def flops(self, model_id: str, *, pipeline: str, toolchain: str) -> dict[str, float]:
        """Return the operations of the model's tasks, by workload key."""
        query = (
            select(WorkloadRow.key, WorkloadRow.flops)
            .join(
                _TASKS,
                (WorkloadRow.key == ModelTaskRow.workload_key)
                & (WorkloadRow.toolchain == ModelTaskRow.toolchain),
            )
            .where(
                ModelTaskRow.model_id == model_id,
                ModelTaskRow.pipeline == pipeline,
                ModelTaskRow.toolchain == toolchain,
            )
        )
        return {row[0]: row[1] for row in self._run(query)}


def _as_json(shapes: Mapping[str, Sequence[int] | str] | None) -> dict[str, list[int] | str]:
    return {name: shape if isinstance(shape, str) else list(shape) for name, shape in (shapes or {}).items()}


def shapes_key(
    shapes: Mapping[str, Sequence[int] | str] | None, values: Mapping[str, Any] | None = None
) -> str:
    """Return canonical text of shapes and values: equal ones have equal texts. Without values it is that of older releases."""
    bound: Any = _as_json(shapes)
    if values:
        bound = {"shapes": bound, "values": dict(values)}
    return json.dumps(bound, sort_keys=True, separators=(",", ":"))
