"""Convert models, tasks and records between the engine's form and the database's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Device, Job, Json, NewRecord, Record, Space
from tunefarm_db.values import Model as ModelValue
from tunefarm_db.values import Workload as WorkloadValue
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.search.task_groups import GroupedTask, latency_sec
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload import revisions
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Model, Specialisation
from tunefarm_tuning.workload.runtime_part import OpenSpec, RuntimePart
from tunefarm_tuning.workload.shapes import fixed_shapes, least_batch, shape_choices
from tunefarm_tuning.workload.task import Alternative, TensorSpec, TuningTask, Workload

if TYPE_CHECKING:
    from tunefarm_tuning.search.trial_outcome import TrialOutcome
    from tunefarm_tuning.space.config_space import ConfigSpace

_RECORD_FIELDS = tuple(field.name for field in fields(Record))


def store_tasks(
    repos: Repositories, model_id: str, pipeline: str, toolchain: str, tasks: Sequence[TuningTask]
) -> None:
    """Store a model's tasks; earlier ones are replaced."""
    repos.workloads.add_many(
        [
            WorkloadValue(
                key=task.workload.key,
                toolchain=toolchain,
                name=task.workload.name,
                flops=task.workload.flops,
                args=[spec.to_json() for spec in task.workload.args],
                ir=task.workload.ir,
            )
            for task in tasks
        ]
    )
    repos.models.set_tasks(
        model_id,
        pipeline=pipeline,
        toolchain=toolchain,
        tasks=[(task.workload.key, task.weight) for task in tasks],
        alternatives={
            task.workload.key: task.alternative.to_json() for task in tasks if task.alternative is not None
        },
        revision=revisions.GRAPH_PASSES,
    )


def binding_of(row: ModelValue) -> Binding:
    """Return what an imported model's inputs are bound to; of several sets of shapes, in the first."""
    if row.specialisations:
        return Specialisation.from_json(row.specialisations[0]).binding
    return Binding.of(fixed_shapes(row.shapes), row.values)


def engine_model(blobs: BlobStore, row: ModelValue) -> Model:
    """Return the imported model in the engine's form."""
    return Model(
        path=blobs.path(row.sha256),
        sha256=row.sha256,
        binding=binding_of(row),
        inputs=tuple(TensorSpec.from_json(spec) for spec in row.inputs),
        outputs=tuple(OpenSpec.from_json(spec) for spec in row.outputs),
        specialisations=tuple(Specialisation.from_json(item) for item in row.specialisations),
        least_batch=least_batch(shape_choices(shape, name=name) for name, shape in row.shapes.items()),
        operators=tuple((str(name), int(count)) for name, count in row.operators),
        opset=row.opset or 0,
        num_params=row.num_params or 0,
        parts=tuple(RuntimePart.from_json(part) for part in row.parts or ()),
    )


def engine_task(row: WorkloadValue, target: Target, weight: int) -> TuningTask:
    """Return a stored workload as a task of a target."""
    return TuningTask(
        workload=Workload(
            key=row.key,
            name=row.name,
            flops=row.flops,
            args=tuple(TensorSpec.from_json(spec) for spec in row.args),
            ir=row.ir,
        ),
        target=target.without_libraries(),
        weight=weight,
    )


def record_rows(
    outcomes: Sequence[TrialOutcome], task: TuningTask, job: Job, device: Device, *, toolchain: str
) -> list[NewRecord]:
    """Return those of a job's outcomes on a device that are trials as rows of records, with the fields of `TrialOutcome.to_record`."""
    # The device's time for the calibration kernel identifies records of a throttled device.
    calibration = device.calibration or {}
    names = {"calibration_sec": "time_sec", "calibration_all_cores_sec": "all_cores_sec"}
    calibrated = {name: calibration[key] for name, key in names.items() if calibration.get(key) is not None}
    if held_back := throttle_of(device.info):
        calibrated["throttle"] = held_back
    return [
        NewRecord(
            workload_key=task.workload.key,
            target_key=task.target.key,
            device_model=device.device_model,
            toolchain=toolchain,
            space_key=outcome.space_key,
            config=outcome.config.to_json(),
            outcome=outcome.outcome.value,
            cost_sec=outcome.cost_sec,
            samples_sec=list(outcome.samples_sec),
            build_sec=outcome.build_sec,
            measured_at=outcome.measured_at,
            tuner=job.tuner,
            message=outcome.message,
            extra={**outcome.recorded_facts, **calibrated},
            confirmed=outcome.confirmed,
            device_id=device.id,
            job_id=job.id,
            certificate_sha256=outcome.origin.certificate_sha256 if outcome.origin else None,
            ticket_jti=outcome.origin.ticket_jti if outcome.origin else None,
        )
        for outcome in outcomes
        if outcome.is_trial
    ]


def throttle_of(info: Mapping[str, Any]) -> list[str]:
    """Return what held the clock of a device's CPU back at its last heartbeat; its agent may have sent anything."""
    agent = info.get("agent")
    reasons = agent.get("throttle") if isinstance(agent, Mapping) else None
    if not isinstance(reasons, list):
        return []
    return [clean(reason, 40) for reason in reasons[:16] if isinstance(reason, str)]


def space_row(space: ConfigSpace, task: TuningTask, toolchain: str) -> Space:
    """Return the row of a task's config space."""
    return Space(
        workload_key=task.workload.key,
        target_key=task.target.key,
        toolchain=toolchain,
        space=space.to_json(),
        space_key=space.key,
        family=space.family,
        extents=list(space.extents),
        revision=revisions.SPACES,
    )


def engine_space(row: Space | None) -> ConfigSpace | None:
    """Return a stored space, for learning from its records; None if it is missing or cannot be read."""
    if row is None or row.family is None:
        return None
    from tunefarm_tuning.space.config_space import ConfigSpace  # imports NumPy, which only a worker needs

    try:
        return ConfigSpace.from_json(row.space)
    except (ValueError, KeyError, TypeError):
        return None


def current_space(row: Space | None) -> ConfigSpace | None:
    """Return a stored space to tune in; None if it must be made again."""
    return engine_space(row) if is_current(row) else None


def is_current(row: Space | None) -> TypeGuard[Space]:
    """Return whether there is a stored space that need not be made again, as after a change of the revision of spaces."""
    return row is not None and row.revision == revisions.SPACES


def engine_record(row: Record) -> TuningRecord:
    """Return a stored record in the engine's form."""
    return TuningRecord.from_fields({name: getattr(row, name) for name in _RECORD_FIELDS})


class CostedTask(Protocol):
    """A job's task with its best cost."""

    @property
    def workload_key(self) -> str: ...

    @property
    def alternative(self) -> Json | None: ...

    @property
    def weight(self) -> int: ...

    @property
    def best_cost_sec(self) -> float | None: ...


def grouped(task: CostedTask, best_sec: float | None) -> GroupedTask:
    """Return a task with its cost, in the form in which the engine groups alternatives."""
    alternative = task.alternative
    return GroupedTask(
        workload_key=task.workload_key,
        weight=task.weight,
        best_sec=best_sec,
        alternative=None if alternative is None else Alternative.from_json(alternative),
    )


def best_latency_sec(tasks: Sequence[CostedTask]) -> float | None:
    """Return the sum of calls x best cost over a model's kernels, by the cheapest alternatives; None if one has no cost."""
    return latency_sec([grouped(task, task.best_cost_sec) for task in tasks])
