"""Make records that apply, without tuning."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.frontend.extraction import extract_tasks
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.interfaces import BuildInput
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision


@dataclass(frozen=True, slots=True)
class TunedNet:
    """A network of three dense layers, and records for it.

    Attributes:
        other_weights: The same network, with other weights in the file.
        other_function: The same, with another activation: its kernels take the same arguments.
        records: One for each of its three tasks.
    """

    model: Model
    other_weights: Model
    other_function: Model
    records: tuple[TuningRecord, ...]

    def records_of(self, device_model: str) -> list[TuningRecord]:
        """Return the records as if they had been measured on another device."""
        return [replace(record, device_model=device_model) for record in self.records]


def applicable_records(
    model: Model, *, seed: int = 0, precision: str = Precision.AS_MODEL, alternatives: bool = True
) -> tuple[TuningRecord, ...]:
    """Return a record for each task of a model on this machine: a random config that builds, and a made-up time.

    Args:
        model: The network.
        seed: Of the configs.
        precision: The tasks' precision.
        alternatives: Whether other algorithms of the same kernels are among the tasks, as in `extract_tasks`.
    """
    records = []
    with LocalBuilder(workers=1) as builder:
        for task in extract_tasks(model, "host", precision=precision, alternatives=alternatives):
            space = builder.config_space(task)
            config = space.sample(np.random.default_rng(seed), 1)[0]
            (built,) = builder.build([BuildInput(task=task, config=config)])
            if built.failure is not None:
                raise RuntimeError(built.failure.message)
            records.append(
                TuningRecord(
                    workload_key=task.workload.key,
                    target_key=task.target.key,
                    device_model=host_device_model(),
                    toolchain=toolchain_key(),
                    space_key=space.key,
                    config=built.config,
                    outcome=Outcome.OK,
                    samples_sec=(1e-5,),
                    build_sec=built.build_sec,
                    measured_at=0.0,
                )
            )
    return tuple(records)
