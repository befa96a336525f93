"""``/metrics`` on a real database: what Prometheus reads is what the tables say."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tunefarm_app.api_keys import create_api_key
from tunefarm_app.composition import Services
from tunefarm_db.device_state import DeviceEvent
from tunefarm_db.values import NewTrial, StepKind


def read(client: TestClient) -> dict[tuple[str, ...], float]:
    """Return the samples, by name and the labels' values, in the order of their names."""
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_it_needs_a_key_that_may_read(stranger: TestClient, services: Services) -> None:
    refused = stranger.get("/metrics")
    assert refused.status_code == 401
    assert "tunefarm_" not in refused.text
    for scope, status in (("device", 403), ("read", 200)):
        _, key = create_api_key(services, name=scope, scopes=[scope])
        answer = stranger.get("/metrics", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == status, scope


def test_a_farm_at_work(
    client: TestClient, services: Services, job: dict[str, Any], device: dict[str, Any]
) -> None:
    before = read(client)
    assert before["tunefarm_jobs", "queued"] == 1
    assert before["tunefarm_jobs", "succeeded"] == 0
    assert before["tunefarm_steps", "ready", "extract"] == 1
    assert before["tunefarm_trials_total", "ok"] == 0
    name, pool = device["name"], device["device_key"]
    states = {key[3]: value for key, value in before.items() if key[0] == "tunefarm_device_state"}
    assert sum(states.values()) == 1
    assert ("tunefarm_device_lease_left_seconds", name, pool) not in before

    trial = {
        "position": 0,
        "config_key": "c",
        "asked_key": "c",
        "outcome": "ok",
        "cost_sec": 1e-3,
        "message": "",
        "build_sec": 0.5,
        "run_sec": 2.0,
        "measured_at": 1.0,
    }
    with services.uow.write() as repos:
        (step,) = repos.steps.for_job(job["id"])
        assert step.kind is StepKind.EXTRACT
        repos.steps.claim(step.id, "w", 60.0)
        repos.devices.apply(device["id"], DeviceEvent.CLEAN)
        assert repos.devices.lease(pool, f"step:{step.id}", 60.0) is not None
        repos.trials.add_many(job["id"], 1, [NewTrial(ordinal=0, **trial)], device_id=device["id"])
    after = read(client)
    assert after["tunefarm_steps", "leased", "extract"] == 1
    assert after["tunefarm_steps", "ready", "extract"] == 0
    assert 0 < after["tunefarm_step_lease_left_seconds", "extract"] <= 60
    assert after["tunefarm_trials_total", "ok"] == 1
    assert after["tunefarm_build_seconds_total",] == 0.5
    assert after["tunefarm_measure_seconds_total",] == 2.0
    assert after["tunefarm_device_measure_seconds_total", name, pool] == 2.0
    assert after["tunefarm_device_state", name, pool, "leased"] == 1
    assert after["tunefarm_device_state", name, pool, "online"] == 0
    assert 0 < after["tunefarm_device_lease_left_seconds", name, pool] <= 60
    assert after["tunefarm_late_writes_rejected_total", "tune"] == 0


def test_names_of_devices_cannot_break_the_format(client: TestClient, services: Services) -> None:
    with services.uow.write() as repos:
        repos.devices.register(
            name='odd"} 1\\\n# name',
            device_key="k",
            target={},
            info={},
            device_model="m",
            tracker_host="h",
            tracker_port=1,
            rpc_key="r",
        )
    assert any('odd"} 1\\\n# name' in key for key in read(client))


def test_openmetrics_for_those_who_ask(client: TestClient) -> None:
    answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
