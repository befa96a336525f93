"""Convert models, tasks and records between the engine's form and the database's; make file names of models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Device, Job, Json, ModelTask, NewRecord, Record, Space
from tunefarm_db.values import Model as ModelValue
from tunefarm_db.values import Workload as WorkloadValue
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.search.task_groups import GroupedTask, latency_sec
from tunefarm_tuning.target.dot_products import byte_products, is_arm64
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload import revisions
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Model, Specialisation
from tunefarm_tuning.workload.precision import Precision, parse_precision
from tunefarm_tuning.workload.runtime_part import OpenSpec, RuntimePart
from tunefarm_tuning.workload.shapes import fixed_shapes, least_batch, shape_choices
from tunefarm_tuning.workload.task import Alternative, TensorSpec, TuningTask, Workload

if TYPE_CHECKING:
    from tunefarm_tuning.search.trial_outcome import TrialOutcome
    from tunefarm_tuning.space.config_space import ConfigSpace

_RECORD_FIELDS = tuple(field.name for field in fields(Record))

_INTEGER_OPERATORS = ("quant", "qlinear", "integer", "qgemm", "qattention", "nbits", "nhwc")
"""Parts of the names, in small letters, of all operators that a product of integers comes from."""

CPU = "cpu"
GPU = "gpu"


def pipeline_of(target: Target, precision: Precision = Precision.AS_MODEL) -> str:
    """Return the name of the graph pipeline for the target and the precision of weights.

    CPUs with an instruction for products of int8 have their own kernels, laid out for it.
    """
    instruction = byte_products(target)
    pipeline = GPU if target.kind == "cuda" else f"{CPU} {instruction.key}" if instruction else CPU
    if precision is Precision.BFLOAT16 and is_arm64(target):  # laid out for another instruction than x86's
        pipeline = f"{pipeline} arm"
    return pipeline if precision is Precision.AS_MODEL else f"{pipeline} {precision.value}"


def shares_tasks_of_any_cpu(target: Target, pipeline: str, operators: Iterable[Sequence[Any]]) -> bool:
    """Return whether a network's tasks in a pipeline are those of any CPU, which its import extracted.

    A pipeline for an instruction of int8 differs in nothing but products of integers.
    """
    instruction = byte_products(target)
    return (
        instruction is not None
        and pipeline == f"{CPU} {instruction.key}"
        and not any(word in name.lower() for name, *_ in operators for word in _INTEGER_OPERATORS)
    )


def share_tasks(repos: Repositories, model_id: str, pipeline: str, tasks: Sequence[ModelTask]) -> None:
    """Store the tasks of one pipeline under another."""
    for toolchain in {task.toolchain for task in tasks}:
        repos.models.set_tasks(
            model_id,
            pipeline=pipeline,
            toolchain=toolchain,
            tasks=[(task.workload_key, task.weight) for task in tasks],
            alternatives={
                task.workload_key: task.alternative for task in tasks if task.alternative is not None
            },
            revision=revisions.GRAPH_PASSES,
        )


def precision_of(job: Job) -> Precision:
    """Return how a job stores weights; jobs of old releases keep the model's precision."""
    return parse_precision(job.options.get("precision"))


def max_error_of(job: Job) -> float | None:
    """Return the largest error of the outputs that a job asks for; None if it asks for none."""
    return job.options.get("max_error")


def wants_other_shapes(job: Job) -> bool:
    """Return whether a job's artifact gets code for shapes that it was not tuned for; in old releases each did."""
    return job.options.get("other_shapes") is not False


def baselines_of(job: Job) -> tuple[str, ...]:
    """Return the other runtimes that a job's artifact is timed beside, besides ONNX Runtime."""
    return tuple(job.options.get("baselines") or ())


EXPECTED = "expected_compile_sec"
"""The member of a job's `options` with the estimate of its compile."""
PREPARED = "prepared_sec"
"""The member of a job's `options` with the seconds of its import and extraction."""
OWN_LIMIT = "own_wall_sec"
"""The member of a job's `options` with the user's own limit of its search, beside a budget of the whole job."""


def own_wall_sec(job: Job) -> float | None:
    """Return the user's own limit of a job's search; with a budget of the whole job, `wall_sec` may be what that leaves."""
    is_derived = job.budget.get("job_sec") is not None and EXPECTED in job.options
    limit: float | None = job.options.get(OWN_LIMIT) if is_derived else job.budget.get("wall_sec")
    return limit


def searches(job: Job) -> bool:
    """Return whether a job searches; one that does not is compiled from what is on record."""
    return job.options.get("search") is not False


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
    """Return a job's outcomes on a device as rows of records, with the fields of `TrialOutcome.to_record`."""
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


_MODEL_FILE_ENDS = (".onnx", ".tflite")


def file_stem(name: str) -> str:
    """Return a model's name as a file name without extension, safe on every system."""
    end = file_end(name)
    stem = name[: -len(end)] if name.lower().endswith(end) else name
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:60]
    return stem or "model"


def file_end(name: str) -> str:
    """Return the file name extension for a model of this name: the name's own if it is a format's, else ``.onnx``."""
    return next((end for end in _MODEL_FILE_ENDS if name.lower().endswith(end)), _MODEL_FILE_ENDS[0])
