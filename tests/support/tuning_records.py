"""A tuning record to vary: most tests change one or two of its fields."""

from __future__ import annotations

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config

RECORD = TuningRecord(
    workload_key="w",
    target_key="t",
    device_model="d",
    toolchain="c",
    space_key="s",
    config=Config(0, (1,)),
    outcome=Outcome.OK,
    samples_sec=(1e-3,),
    build_sec=0.1,
    measured_at=1.0,
)
