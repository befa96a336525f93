"""``/metrics`` on a real database: Prometheus reads what the tables say."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text
from starlette.testclient import TestClient

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_app.webhooks.request import Attempt
from tunefarm_app.webhooks.sender import Patience, settle
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import BY_A_PERSON, WEBHOOK_STATES, NewTrial, StepKind
from tunefarm_tuning.process import sandbox

LEASE_SEC = 21_600.0


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


def test_what_confines_children(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "available_sandbox", lambda: (7, True))
    assert read(client)["tunefarm_sandbox", "7", "best-effort", "true"] == 1.0
    monkeypatch.setattr(sandbox, "available_sandbox", lambda: (4, True))
    assert read(client)["tunefarm_sandbox", "4", "best-effort", "true"] == 0.0
    monkeypatch.setenv("TUNEFARM_SANDBOX", "off")
    assert read(client)["tunefarm_sandbox", "0", "off", "false"] == 0.0


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
        repos.steps.claim(step.id, "w", LEASE_SEC)
        repos.devices.apply(device["id"], DeviceEvent.CLEAN)
        assert repos.devices.lease(pool, f"step:{step.id}", LEASE_SEC) is not None
        repos.trials.add_many(job["id"], 1, [NewTrial(ordinal=0, **trial)], device_id=device["id"])
    after = read(client)
    assert after["tunefarm_steps", "leased", "extract"] == 1
    assert after["tunefarm_steps", "ready", "extract"] == 0
    assert 0 < after["tunefarm_step_lease_left_seconds", "extract"] <= LEASE_SEC
    assert after["tunefarm_trials_total", "ok"] == 1
    assert after["tunefarm_build_seconds_total",] == 0.5
    assert after["tunefarm_measure_seconds_total",] == 2.0
    assert after["tunefarm_device_measure_seconds_total", name, pool] == 2.0
    assert after["tunefarm_device_state", name, pool, "leased"] == 1
    assert after["tunefarm_device_state", name, pool, "online"] == 0
    assert 0 < after["tunefarm_device_lease_left_seconds", name, pool] <= LEASE_SEC
    assert after["tunefarm_late_writes_rejected_total", "tune"] == 0


def beat(client: TestClient, device: dict[str, Any], **info: Any) -> dict[str, float]:
    """Send a sign of life; return the device's metrics."""
    answer = client.post(f"/v1/devices/{device['id']}/heartbeat", json={"info": info})
    assert answer.status_code == 200, answer.text
    return {
        key[0].removeprefix("tunefarm_device_"): value
        for key, value in read(client).items()
        if key[0].startswith("tunefarm_device_") and key[1] == device["name"]
    }


def test_how_a_device_is(client: TestClient, services: Services, device: dict[str, Any]) -> None:
    agent = {"load": [1.0, 9, 9], "temperature_celsius": 61.5, "clock_mhz": 3000, "clock_max_mhz": 4000}
    cpu = beat(client, device, cores=4, agent=agent)
    assert (cpu["temperature_celsius"], cpu["clock_hertz"], cpu["clock_max_hertz"]) == (61.5, 3e9, 4e9)
    assert cpu["load_ratio"] == 0.25
    assert "memory_used_bytes" not in cpu
    assert "calibration_ratio" not in cpu
    with services.uow.write() as repos:
        repos.calibrations.mark_overdue()
        lease = repos.calibrations.lease(device["id"], 0, "w", LEASE_SEC)
        assert lease is not None
        repos.calibrations.finish(
            device["id"],
            lease.fence,
            event=DeviceEvent.CLEAN,
            reason="",
            calibration={"key": "k", "time_sec": 3e-3, "reference_sec": 2e-3, "at": 0.0},
            next_sec=60.0,
        )
    gpu = {"temperature_celsius": 80, "clock_mhz": 1980, "load": 0.5, "memory_used_bytes": 1 << 30}
    gpu["power_watts"] = 350.5
    gpu_beat = beat(client, device, cores=4, agent={**agent, "gpus": [gpu]})
    assert (gpu_beat["temperature_celsius"], gpu_beat["clock_hertz"], gpu_beat["load_ratio"]) == (
        80,
        1.98e9,
        0.5,
    )
    assert gpu_beat["memory_used_bytes"] == 1 << 30
    assert gpu_beat["power_watts"] == 350.5
    assert "clock_max_hertz" not in gpu_beat, "the CPU's is another chip's"
    assert (gpu_beat["calibration_seconds"], round(gpu_beat["calibration_ratio"], 3)) == (3e-3, 1.5)
    away = client.post(f"/v1/devices/{device['id']}/heartbeat", json={"ready": False})
    assert away.status_code == 200
    assert not [key for key in read(client) if "celsius" in key[0]], "nobody knows"


def test_made_up_vitals_break_nothing(client: TestClient, device: dict[str, Any]) -> None:
    for nonsense in ("x", None, [], {}, 10**400, True, [[]], [{}], [{"load": "x"}]):
        gauges = beat(
            client, device, cores=nonsense, agent={"load": nonsense, "gpus": nonsense, "clock_mhz": nonsense}
        )
        assert not {"load_ratio", "clock_hertz", "temperature_celsius"} & set(gauges)
        gauges = beat(client, device, agent=nonsense)
        assert "load_ratio" not in gauges


def test_the_space_that_is_taken_and_left(client: TestClient, services: Services) -> None:
    assert read(client)["tunefarm_database_bytes",] > 10_000
    before = read(client).get(("tunefarm_store_used_bytes",), 0)
    services.blobs.put([b"x" * 1000])
    after = read(client)
    assert after["tunefarm_store_used_bytes",] == before + 1000
    assert 0 < after["tunefarm_store_free_bytes",] < after["tunefarm_store_disk_bytes",]


def test_names_of_devices_cannot_break_the_format(client: TestClient, services: Services) -> None:
    with services.uow.write() as repos:
        repos.devices.register(
            name='odd"} 1\\\n# name',
            device_key="k",
            target={},
            info={},
            device_model="m",
            rpc_key="r",
        )
    assert any('odd"} 1\\\n# name' in key for key in read(client))


def test_openmetrics_for_those_who_ask(client: TestClient) -> None:
    answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_webhooks(client: TestClient, services: Services) -> None:
    before = read(client)
    assert [before["tunefarm_webhooks", state] for state in WEBHOOK_STATES] == [0, 0, 0, 0]
    assert before["tunefarm_webhook_deliveries_total", "delivered"] == 0
    assert before["tunefarm_webhook_oldest_pending_seconds",] == 0
    with services.uow.write() as repos:
        good, failing = (
            repos.webhooks.add(url="https://8.8.8.8/", kinds=[], job_id=None, secret="whsec_eA==")
            for _ in range(2)
        )
        for webhook in (good, failing, failing):
            repos.deliveries.queue_test(webhook.id)
        ids = repos.deliveries.due(2)
    for delivery_id, error in zip(ids, ("", "the receiver answered 500"), strict=True):
        with services.uow.write() as repos:
            claimed = repos.deliveries.claim(delivery_id, LEASE_SEC)
            assert claimed is not None
            attempt = Attempt(status=500 if error else 200, error=error, latency_sec=0.1)
            settle(repos, claimed, attempt, Patience(first_sec=3600.0))
    with services.uow.engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE webhook_deliveries SET not_before = not_before - 90, created_at = created_at - 100"
                " WHERE attempts = 0"
            )
        )
    after = read(client)
    assert [after["tunefarm_webhooks", state] for state in WEBHOOK_STATES] == [1, 1, 0, 0]
    ended = [
        after["tunefarm_webhook_deliveries_total", result] for result in ("delivered", "retried", "given-up")
    ]
    assert ended == [1, 1, 0]
    assert after["tunefarm_webhook_deliveries_pending",] == 2
    assert 100 <= after["tunefarm_webhook_oldest_pending_seconds",] < 3600
    assert 90 <= after["tunefarm_webhook_overdue_seconds",] < 3600
    with services.uow.write() as repos:
        repos.webhooks.disable(failing.id, BY_A_PERSON)
        repos.webhooks.disable(good.id, "it failed for too long")
    last = read(client)
    assert [last["tunefarm_webhooks", state] for state in WEBHOOK_STATES] == [0, 0, 1, 1]
    assert last["tunefarm_webhook_deliveries_total", "given-up"] == 2
    assert last["tunefarm_webhook_overdue_seconds",] == 0
