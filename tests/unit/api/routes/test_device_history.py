"""The history of a device over HTTP."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from tunefarm_app.runtime.composition import Services
from tunefarm_db.ids import new_id
from tunefarm_db.values import CalibrationOutcome, NewCalibration, NewRecord, NewTrial

AGENT = {"load": [1.5, 1, 1], "temperature_celsius": 61.0, "clock_mhz": 3410}


@pytest.fixture
def path(device: dict[str, Any]) -> str:
    return f"/v1/devices/{device['id']}"


def items(client: TestClient, path: str, **query: Any) -> list[dict[str, Any]]:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    listed: list[dict[str, Any]] = answer.json()["items"]
    return listed


@pytest.mark.parametrize(("span", "count", "width"), [("hour", 61, 60), ("day", 97, 900), ("week", 85, 7200)])
def test_intervals_cover_the_span(client: TestClient, path: str, span: str, count: int, width: int) -> None:
    document = client.get(f"{path}/intervals", params={"span": span}).json()
    assert (document["span"], document["width_sec"], len(document["items"])) == (span, width, count)
    starts = [interval["at"] for interval in document["items"]]
    assert all(later - earlier == width for earlier, later in itertools.pairwise(starts))
    assert 0.0 <= document["items"][-1]["sec"] <= width


def test_signs_of_life_and_the_running_lease_are_in_the_intervals(
    client: TestClient, services: Services, path: str, device: dict[str, Any], job: dict[str, Any]
) -> None:
    for agent in ({**AGENT, "temperature_celsius": "hot"}, AGENT, {"gpus": [{"temperature_celsius": 70.5}]}):
        assert client.post(f"{path}/heartbeat", json={"info": {"agent": agent}}).status_code == 200
    with services.uow.write() as repos:
        (step,) = repos.steps.for_job(job["id"])
        assert repos.devices.lease(device["device_key"], f"step:{step.id}", 600.0) is not None
        repos._connection.execute(text("UPDATE devices SET leased_at = leased_at - 120"))
    shown = items(client, f"{path}/intervals", span="hour")
    assert sum(interval["beats"] for interval in shown) == 3
    assert max(interval["temperature_celsius"] or 0.0 for interval in shown) == 70.5
    assert {interval["load"] for interval in shown} == {None, 1.5}
    assert 110.0 < sum(interval["work_sec"] for interval in shown) < 300.0
    assert all(interval["work_sec"] <= interval["sec"] + 1e-6 for interval in shown)
    held = client.get(path).json()
    assert (held["work"], held["step_id"], held["job_id"]) == (step.kind.value, step.id, job["id"])
    assert held["leased_at"] < held["lease_until"]


def test_a_calibration_is_no_work_of_a_job(
    client: TestClient, services: Services, path: str, device: dict[str, Any]
) -> None:
    with services.uow.write() as repos:
        assert repos.devices.lease(device["device_key"], "calibration:w", 600.0) is not None
        repos._connection.execute(text("UPDATE devices SET leased_at = leased_at - 120"))
    shown = items(client, f"{path}/intervals")
    assert sum(interval["work_sec"] for interval in shown) == 0.0
    assert sum(interval["calibration_sec"] for interval in shown) > 110.0
    assert client.get(path).json()["work"] == "calibrate"


def test_calibrations_with_the_limit_that_they_are_held_to(
    client: TestClient, services: Services, path: str, device: dict[str, Any]
) -> None:
    with services.uow.write() as repos:
        for calibration in (
            NewCalibration(outcome=CalibrationOutcome.CLEAN, key="k", time_sec=0.002, reference_sec=0.002),
            NewCalibration(outcome=CalibrationOutcome.BROKEN, reason="no answer"),
        ):
            repos.device_history.add_calibration(device["id"], calibration)
    broken, clean = items(client, f"{path}/calibrations")
    assert (broken["outcome"], broken["reason"], broken["time_sec"], broken["limit_sec"]) == (
        "broken",
        "no answer",
        None,
        None,
    )
    assert (clean["outcome"], clean["limit_sec"]) == ("clean", pytest.approx(0.003))
    first = client.get(f"{path}/calibrations", params={"limit": 1}).json()
    assert items(client, f"{path}/calibrations", cursor=first["next_cursor"]) == [clean]


def test_changes_of_its_state(client: TestClient, path: str) -> None:
    client.post(f"{path}/drain", json={"reason": "a new fan"})
    changes = items(client, f"{path}/changes")
    assert [(change["event"], change["state"]) for change in changes] == [
        ("drain", "draining"),
        ("clean", "online"),
        ("ready", "checking"),
        ("join", "offline"),
    ]
    assert "a new fan" in changes[0]["reason"]
    assert client.get(path).json()["state_since"] == pytest.approx(changes[0]["created_at"], abs=5)


def test_what_it_measured_and_how_much(
    client: TestClient, services: Services, path: str, device: dict[str, Any], job: dict[str, Any]
) -> None:
    assert client.get(f"{path}/totals").json() == {"measured_sec": 0.0, "trials": 0, "outcomes": {}}
    with services.uow.write() as repos:
        record = NewRecord(
            workload_key="w",
            target_key="llvm",
            device_model="m",
            toolchain="tvm",
            space_key="s",
            config=[],
            outcome="ok",
            cost_sec=0.001,
            samples_sec=[],
            build_sec=0.1,
            measured_at=5.0,
            device_id=device["id"],
            job_id=job["id"],
        )
        (record_id,) = repos.records.add_many([record])
        trial = {"position": 0, "cost_sec": 0.001, "message": "", "build_sec": 0.1, "measured_at": 5.0}
        trials = [
            NewTrial(ordinal=n, config_key=str(n), asked_key=str(n), outcome=outcome, run_sec=2.0, **trial)
            for n, outcome in enumerate(("ok", "ok", "run-crash"))
        ]
        repos.trials.add_many(job["id"], 0, trials, device_id=device["id"])
    totals = client.get(f"{path}/totals").json()
    assert totals == {"measured_sec": 6.0, "trials": 3, "outcomes": {"ok": 2, "run-crash": 1}}
    (shown,) = items(client, f"{path}/records")
    assert (shown["id"], shown["job_id"], shown["position"], shown["cost_sec"]) == (
        record_id,
        job["id"],
        None,
        0.001,
    )


@pytest.mark.parametrize("collection", ["intervals", "totals", "calibrations", "changes", "records"])
def test_an_unknown_device(client: TestClient, stranger: TestClient, problem: Any, collection: str) -> None:
    problem(client.get(f"/v1/devices/{new_id('dev')}/{collection}"), 404, "device-not-found")
    stranger.headers.pop("Authorization")
    problem(stranger.get(f"/v1/devices/{new_id('dev')}/{collection}"), 401, "unauthenticated")


def test_a_bad_span_and_a_bad_cursor(client: TestClient, path: str, problem: Any) -> None:
    problem(client.get(f"{path}/intervals", params={"span": "century"}), 422, "invalid-request")
    for collection, other in (("calibrations", "dch"), ("changes", "cal"), ("records", "cal")):
        problem(client.get(f"{path}/{collection}", params={"cursor": new_id(other)}), 422, "invalid-cursor")
