"""Dashboard, alerts and scrape configuration name metrics, labels and services that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from app_farm import farm_settings, make_farm
from repository import ROOT

from tunefarm_api.metrics.farm import render_metrics
from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import DeviceState

DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/tunefarm.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "monitoring.yml").read_text())


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for group in ALERTS["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names of all metrics of a farm with a job at work, with their labels."""
    folder = tmp_path_factory.mktemp("farm")
    farm = make_farm(
        farm_settings(
            folder,
        )
    )
    device = farm.add_device()
    farm.upload(Scenario())
    with farm.services.uow.write() as repos:
        assert repos.steps.claim(farm.inbox.messages[0], "w", 60.0) is not None
        vitals = {
            "temperature_celsius": 50,
            "clock_mhz": 1,
            "clock_max_mhz": 2,
            "load": 0.5,
            "memory_used_bytes": 1,
            "power_watts": 1,
        }
        repos.devices.heartbeat(device.id, ready=True, reason="", info={"agent": {"gpus": [vitals]}})
        repos.calibrations.mark_overdue()
        lease = repos.calibrations.lease(device.id, 0, "w", 60.0)
        assert lease is not None
        clean = {"key": "k", "time_sec": 1e-3, "reference_sec": 1e-3, "at": 0.0}
        clean |= {"all_cores_sec": 1e-3, "all_cores_reference_sec": 1e-3}
        repos.calibrations.finish(
            device.id, lease.fence, event=DeviceEvent.CLEAN, reason="", calibration=clean, next_sec=600.0
        )
        assert repos.devices.lease(device.device_key, "step:x", 60.0) is not None
    lines = render_metrics(farm.services, "")[0].decode().splitlines()
    farm.services.close()
    labels_of: dict[str, set[str]] = {}
    for line in lines:
        if not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            labels_of.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return labels_of


def test_every_metric_and_label_exists(metrics: dict[str, set[str]]) -> None:
    seen = set()
    for expression in expressions():
        for name, matchers in re.findall(r"(tunefarm_\w+)(\{[^}]*\})?", expression):
            seen.add(name)
            assert name in metrics, expression
            assert set(re.findall(r"(\w+)=", matchers)) <= metrics[name], expression
    assert metrics.keys() - seen == {"tunefarm_build_info"}, "all that is told is shown"


def test_states_in_expressions_are_states() -> None:
    for expression in expressions():
        for states in re.findall(r'device_state\{state=~?"([^"]+)"', expression):
            assert set(states.split("|")) <= {state.value for state in DeviceState}


def test_alerts_name_only_labels_that_their_expression_keeps() -> None:
    for rule in (rule for group in ALERTS["groups"] for rule in group["rules"]):
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        shown, _, _ = rule["expr"].partition(" and on ")  # what stands on its right only chooses
        for kept in re.findall(r"\b(?:sum|min|max|avg|count)\b\s*(?:by\s*\(([^)]*)\))?", shown):
            assert named <= {label.strip() for label in kept.split(",")}, rule["alert"]


def test_metrics_are_documented(metrics: dict[str, set[str]]) -> None:
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    assert [name for name in metrics if name not in page] == []


def test_prometheus_scrapes_the_api_with_a_key() -> None:
    scrape = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert [job["static_configs"][0]["targets"] for job in scrape] == [["api:8000"]]
    assert scrape[0]["authorization"]["credentials_file"] == "/run/secrets/prometheus-key"
    assert COMPOSE["services"]["prometheus"]["secrets"] == ["prometheus-key"]


def test_nothing_is_published_beyond_loopback_and_files_are_there() -> None:
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["networks"] == ["front"]
        for volume in service["volumes"]:
            if volume.startswith("./"):
                assert (DEPLOY.parent / volume.partition(":")[0]).exists(), volume


def test_panels_do_not_overlap() -> None:
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not taken & cells
        assert at["x"] + at["w"] <= 24
        taken |= cells
