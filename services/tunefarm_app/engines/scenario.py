"""`Scenario`: the file that a replay farm takes for a model, and the tasks that it describes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_app.engines.recorded_tasks import RecordedTask
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.task import TensorSpec, TuningTask, Workload

_PRODUCER_NAME = b"\x12"
"""How protobuf writes the key of the field of an ONNX file that holds a scenario's JSON; older ones are JSON after a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The tasks of a simulated model, and the behaviour of their measurements.

    Attributes:
        tasks: Kernels of the model.
        seed: Seed of the landscapes; scenarios of one seed share their workloads.
        trial_sec: How long each candidate takes.
        compile_sec: How long the compiler takes.
        failing: Share of candidates that fail.
        extent: Iterations of the loops to be tiled; 1 gives a space of four configs.
        unschedulable: Positions of tasks without a config space.
        nests: The kernels are matrix products, and their spaces say so: a tuner can then transfer records between
            them, as between real kernels.
        recorded: Tasks that were tuned for real, in place of `tasks`. Builds and measurements take as long as they did
            then; a config that was never tried gets the result of one that was.
        scale: Factor on those times.
    """

    tasks: int = 2
    seed: int = 0
    trial_sec: float = 0.0
    compile_sec: float = 0.0
    failing: float = 0.0
    extent: int = 64
    unschedulable: tuple[int, ...] = ()
    nests: bool = False
    recorded: tuple[RecordedTask, ...] = ()
    scale: float = 1.0

    @property
    def num_tasks(self) -> int:
        return len(self.recorded) or self.tasks

    def tuning_tasks(self, target: Target) -> tuple[TuningTask, ...]:
        """Return the tasks of the scenario's model; the text of each workload is what `simulated_tasks` and `recorded_tasks` read."""
        weights = [task.weight for task in self.recorded] or range(1, self.tasks + 1)
        return tuple(
            TuningTask(workload=self._workload(position), target=target, weight=weight)
            for position, weight in enumerate(weights)
        )

    def to_bytes(self) -> bytes:
        """Return the scenario as a file to upload."""
        content = json.dumps(dataclasses.asdict(self)).encode()
        length, size = bytearray(), len(content)
        while size > 0x7F:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        return _PRODUCER_NAME + bytes([*length, size]) + content

    @classmethod
    def read(cls, path: Path) -> Scenario:
        """Read what `to_bytes` wrote.

        Raises:
            InvalidModelError: If it is not such a file.
        """
        try:
            content = path.read_bytes()
            data = json.loads(content[content.index(b'{"') :])
            recorded = tuple(RecordedTask.from_json(task) for task in data.pop("recorded", ()))
            unschedulable = tuple(data.pop("unschedulable", ()))
            return cls(**data, unschedulable=unschedulable, recorded=recorded)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise InvalidModelError(
                "this farm runs in simulation (TUNEFARM_ENGINE=replay) and accepts only scenarios",
                code="invalid-onnx",
            ) from error

    def _workload(self, position: int) -> Workload:
        if self.recorded:
            task = self.recorded[position]
            facts: dict[str, Any] = {"recorded": task.to_json(), "scale": self.scale, "seed": self.seed}
            return _workload_of(facts, task.name, task.flops)
        facts = {
            "seed": self.seed * 1000 + position,
            "trial_sec": self.trial_sec,
            "failing": self.failing,
            "extent": self.extent,
            "unschedulable": position in self.unschedulable,
        }
        if self.nests:
            facts["nests"] = True
        return _workload_of(facts, f"matmul_{position}", 1e6 * (position + 1))


def _workload_of(facts: Mapping[str, Any], name: str, flops: float) -> Workload:
    text = json.dumps(facts, sort_keys=True)
    return Workload(
        key=hashlib.sha256(text.encode()).hexdigest()[:32],
        name=name,
        flops=flops,
        args=(TensorSpec(name="x", shape=(1, 8), dtype="float32"),),
        ir=text,
    )
