"""What is on record of other tasks, as a tuner takes it in."""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config_space import ConfigSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHistory:
    """Records of one workload on one target and device model: they can be compared with each other.

    Attributes:
        space: The space that the records' configs are points of; records of another are ignored.
    """

    space: ConfigSpace
    records: tuple[TuningRecord, ...]
