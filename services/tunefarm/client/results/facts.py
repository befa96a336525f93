"""The few facts that tell what a value is about, for people. What has no name is what the value is called."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch

from tunefarm.client.results.devices import Device
from tunefarm.client.results.jobs import Event, Job, JobTask, Model, ModelTask, Record, Tensor, Trial
from tunefarm_text import quantities


@singledispatch
def facts(value: object) -> Mapping[str, str]:
    """Return a value's facts by their names, the most telling first; an empty one is not shown."""
    raise NotImplementedError(type(value).__name__)


@facts.register
def _(model: Model) -> Mapping[str, str]:
    return {
        "": model.id,
        "name": model.name,
        "state": model.state,
        "inputs": _tensors(model.inputs),
        "outputs": _tensors(model.outputs),
        "size": quantities.size(model.size_bytes),
        "error": model.error.message if model.error else "",
    }


@facts.register
def _(task: ModelTask) -> Mapping[str, str]:
    return {
        "": task.name,
        "arguments": _tensors(task.args),
        "calls": str(task.weight),
        "operations": quantities.flops(task.flops),
    }


@facts.register
def _(job: Job) -> Mapping[str, str]:
    return {
        "": job.id,
        "state": job.state,
        "target": job.target_key,
        "trials": f"{job.trials} ({job.failures} failed)",
        "kernels": f"{job.progress.tasks_with_record} of {job.progress.tasks_total}",
        "best": quantities.latency(job.best_latency_sec),
        "waits for": job.waiting or "",
        "error": job.error.message if job.error else "",
    }


@facts.register
def _(task: JobTask) -> Mapping[str, str]:
    return {
        "": task.name,
        "calls": str(task.weight),
        "trials": f"{task.trials} ({task.failures} failed)",
        "best": quantities.latency(task.best_cost_sec),
        # No ratio of the two: the search timed the one, the compiler the other. The report compares them side by side.
        "untuned": quantities.latency(task.untuned_cost_sec),
    }


@facts.register
def _(trial: Trial) -> Mapping[str, str]:
    return {
        "": str(trial.position),
        "round": str(trial.round),
        "outcome": trial.outcome,
        "time": quantities.latency(trial.cost_sec),
        "message": trial.message,
    }


@facts.register
def _(record: Record) -> Mapping[str, str]:
    return {
        "": record.workload_key,
        "target": record.target_key,
        "device": record.device_model,
        "outcome": record.outcome,
        "time": quantities.latency(record.cost_sec),
        "tuner": record.tuner,
        "measured": quantities.local_time(record.measured_at),
    }


@facts.register
def _(event: Event) -> Mapping[str, str]:
    data = ", ".join(f"{name}={value}" for name, value in event.data.items())
    return {
        "": str(event.seq),
        "kind": event.kind,
        "at": quantities.local_time(event.created_at),
        "data": data,
    }


@facts.register
def _(device: Device) -> Mapping[str, str]:
    return {
        "": device.id,
        "name": device.name,
        "pool": device.device_key,
        "model": device.device_model,
        "state": device.state,
        "reason": device.reason,
        "job": device.job_id or "",
    }


def _tensors(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(
        f"{tensor.name} {quantities.shape(tensor.shape, tensor.dtype)}".strip() for tensor in tensors
    )
