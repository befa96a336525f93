"""The values of a device's page."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tunefarm_api.web.devices.device_view import (
    MOST_POINTS,
    agent_facts,
    calibration_chart,
    credential_facts,
    interval_chart,
    use_of,
)
from tunefarm_app.devices.credentials import Credential
from tunefarm_app.devices.history import Span
from tunefarm_db.values import Device, DeviceInterval


def test_use_is_of_the_time_that_the_device_is_known() -> None:
    intervals = [
        DeviceInterval(at=0.0, sec=60.0),
        DeviceInterval(at=60.0, sec=60.0, work_sec=20.0, measured_sec=10.0, calibration_sec=10.0),
        DeviceInterval(at=120.0, sec=20.0, work_sec=10.0),
    ]
    use = use_of(intervals, created_at=-5.0)
    assert (use.known_sec, use.work) == (140.0, pytest.approx(30 / 140))
    known = use_of(intervals, created_at=80.0)
    assert (known.known_sec, known.work, known.measured) == (60.0, 0.5, pytest.approx(1 / 6))
    assert known.leased == pytest.approx(40 / 60)
    nothing = use_of([], created_at=0.0)
    assert (nothing.leased, nothing.known_sec) == (0.0, 0.0)


def test_a_chart_has_a_column_per_quantity_and_shares_that_make_sense() -> None:
    intervals = [
        DeviceInterval(at=0.0, sec=60.0, work_sec=90.0, load=1.234, clock_mhz=3410.0),
        DeviceInterval(at=60.0, sec=0.2, work_sec=0.2),
    ]
    drawn = interval_chart(Span.HOUR, intervals)
    assert (drawn["work"], drawn["measured"]) == ([100.0, 0.0], [0.0, 0.0])
    assert (drawn["load"], drawn["clock"], drawn["temperature"]) == ([1.23, None], [3.41, None], [None, None])


def test_few_calibrations_are_all_drawn() -> None:
    drawn = calibration_chart([(1.0, "clean", 0.002, 0.002), (2.0, "broken", None, None)], 1.5)
    assert drawn == {
        "at": [1.0, 2.0],
        "ms": [2.0, None],
        "reference": [2.0, None],
        "most": [3.0, None],
        "least": [pytest.approx(4 / 3), None],
        "outcome": ["clean", "broken"],
        "runs": 2,
    }


def test_of_many_calibrations_those_that_tell_most_are_drawn() -> None:
    times = [(float(at), "clean", 0.002, 0.002) for at in range(20_000)]
    times[777] = (777.0, "clean", 0.0028, 0.002)
    times[15_000] = (15_000.0, "drift", 0.004, 0.002)
    drawn = calibration_chart(times, 1.5)
    assert len(drawn["at"]) <= MOST_POINTS
    assert {777.0, 15_000.0, 19_999.0} <= set(drawn["at"])
    assert drawn["at"] == sorted(drawn["at"])
    assert drawn["runs"] == 20_000


def test_of_many_that_failed_the_newest_are_drawn() -> None:
    times = [(float(at), "drift", 0.004, 0.002) for at in range(5000)]
    drawn = calibration_chart(times, 1.5)
    assert len(drawn["at"]) <= MOST_POINTS
    assert drawn["at"][-1] == 4999.0
    assert drawn["at"][0] < 100.0


@pytest.mark.parametrize("span", list(Span))
def test_intervals_are_as_many_as_a_screen_can_show(span: Span) -> None:
    assert 60 <= span.sec / span.width_sec <= 96
    assert span.width_sec % 60 == 0
    assert span is Span.HOUR or span.width_sec % 900 == 0, "slots of the day before are that wide"


def told_by(agent: dict[str, Any]) -> dict[str, str]:
    known: dict[str, Any] = {field.name: None for field in fields(Device)}
    return dict(agent_facts(Device(**{**known, "info": {"agent": agent}})))


def test_an_agent_tells_what_holds_its_clock_back() -> None:
    told = told_by({"state": "serving", "throttle": ["thermal-cpufreq-0", 7, "under\x1bvoltage"]})
    assert told["Clock limited by"].startswith("thermal-cpufreq-0, under")
    assert "\x1b" not in told["Clock limited by"]
    for odd in ([], {}, "hot", None):
        assert "Clock limited by" not in told_by({"state": "serving", "throttle": odd})


def test_an_agent_tells_of_its_gpu() -> None:
    gpu = {
        "power_watts": 350.5,
        "power_limit_watts": 700.0,
        "throttle": ["power-cap", "thermal"],
        "processes": [{"pid": 7, "name": "train"}, {"pid": 8}],
        "mig": True,
    }
    assert told_by({"state": "serving", "gpus": [gpu]}) == {
        "RPC server": "serving",
        "GPU's power": "350.5 W of 700.0 W",
        "GPU's clock limited by": "power-cap, thermal",
        "Processes on the GPU": "train (pid 7), a process (pid 8)",
        "GPU partitioned (MIG)": "yes",
    }
    assert told_by({"gpus": [{"mig": False, "throttle": []}]}) == {}
    odd = {"power_watts": [1], "throttle": [{}], "processes": ["x", {"pid": []}], "mig": "yes"}
    assert set(told_by({"gpus": [odd]})) <= {"Processes on the GPU"}


@pytest.mark.parametrize(("expires_at", "end"), [(None, "no end"), (9e9, "2255-03-14")])
def test_the_end_of_a_credential(expires_at: float | None, end: str) -> None:
    """Before, one without an end was to be replaced "after half of the time"."""
    credential = Credential(key_id="ab12", created_at=1.7e9, expires_at=expires_at, last_used_at=None)
    told = dict(credential_facts(credential))["Credential until"]
    assert told.startswith(end)
    assert ("replaces it before" in told) == (expires_at is not None)
