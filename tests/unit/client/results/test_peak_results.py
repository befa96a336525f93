"""Peaks and rooflines in answers: missing from older servers, refused if malformed."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm.client import DevicePeak, JobTask, Roofline
from tunefarm.client.errors import ProtocolError

TASK: dict[str, Any] = {"position": 0, "name": "conv", "workload_key": "w"}
TOLD: dict[str, Any] = {
    "flops_per_sec": 80e9,
    "peak_flops_per_sec": 100e9,
    "share_of_peak": 0.8,
    "intensity": 2.0,
    "bound_flops_per_sec": 90e9,
    "share_of_bound": 0.89,
    "memory_bound": True,
}


def test_a_roofline() -> None:
    read = JobTask.read({**TASK, "flops": 1e9, "roofline": TOLD})
    assert read.flops == 1e9
    assert read.roofline is not None
    assert (read.roofline.share_of_peak, read.roofline.share_of_bound) == (0.8, 0.89)
    assert read.roofline.memory_bound is True


def test_what_was_not_measured_is_none() -> None:
    read = Roofline.read({"flops_per_sec": 1.0, "share_of_peak": None, "memory_bound": None})
    assert read is not None
    assert (read.share_of_peak, read.bound_flops_per_sec, read.memory_bound) == (None, None, None)
    assert JobTask.read(TASK).roofline is None
    peak = DevicePeak.read({"threads": 4, "flops_per_sec": {}, "bandwidth": [], "missing": "a GPU"})
    assert peak is not None
    assert (peak.flops_per_sec, peak.memory_bytes_per_sec, peak.missing) == ({}, None, "a GPU")


@pytest.mark.parametrize("data", [3, {}, {"flops_per_sec": "fast"}])
def test_nonsense_is_refused(data: Any) -> None:
    with pytest.raises(ProtocolError):
        Roofline.read(data)
    with pytest.raises(ProtocolError):
        DevicePeak.read(data)
