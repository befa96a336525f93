"""What an error of a step means for its device."""

from __future__ import annotations

import pytest

from tunefarm_app.leases.device_blame import Blame, blame_for
from tunefarm_db.states.device import DeviceEvent
from tunefarm_tuning.core.errors import DeviceLostError, broke_protocol


@pytest.mark.parametrize(
    "error", [broke_protocol("dev-1", "it sent a request"), DeviceLostError("no", code="impossible-times")]
)
def test_an_attack_or_false_times_need_a_person(error: DeviceLostError) -> None:
    assert blame_for(error) == Blame(event=DeviceEvent.QUARANTINE, reason=error.message, held=True)


@pytest.mark.parametrize(
    ("misses", "event", "reason"),
    [
        (0, DeviceEvent.DOUBT, "waits for calibration after: cable"),
        (1, DeviceEvent.DOUBT, "waits for calibration after: cable"),
        (2, DeviceEvent.FAIL, "at 2 tries of one step: cable"),
    ],
)
def test_a_device_is_quarantined_at_its_second_miss(misses: int, event: DeviceEvent, reason: str) -> None:
    assert blame_for(DeviceLostError("cable", misses=misses)) == Blame(event=event, reason=reason)


def test_an_error_that_counts_no_misses_asks_for_a_calibration() -> None:
    assert blame_for(DeviceLostError("cable")).event is DeviceEvent.DOUBT
