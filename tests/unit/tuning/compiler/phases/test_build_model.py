"""What a report says of a network whose alternatives or tuned kernels are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefarm_tuning.compiler.alternatives import SelectedAlternatives
from tunefarm_tuning.compiler.phases.build_model import BuiltModels, Fallback
from tunefarm_tuning.compiler.phases.untuned import UntunedModel
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config

RECORD = TuningRecord(
    workload_key="a", target_key="t", device_model="d", toolchain="c", space_key="s", config=Config(0, ()),
    outcome=Outcome.OK, samples_sec=(1e-3,), build_sec=0.0, measured_at=0.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("is_tuned", "reason", "is_told"),
    [
        (False, MissReason.SLOWER_THAN_UNTUNED, False),
        (False, MissReason.WRONG_ANSWER, True),
        (True, MissReason.SLOWER_THAN_UNTUNED, True),
    ],
)
def test_alternatives_that_are_no_faster_are_no_warning_where_nothing_was_tuned(
    is_tuned: bool, reason: MissReason, is_told: bool
) -> None:
    library = Path("model.so")
    built = BuiltModels(
        untuned=UntunedModel(library=Path("untuned.so")),
        tuned=library,
        alternatives=SelectedAlternatives(library=library),
        records={"a": RECORD} if is_tuned else {},
    )
    warnings = built.warnings_of(Fallback(reason=reason, message="why"))
    assert warnings == (["all kernels fell back to untuned: why"] if is_told else [])
