"""The contents of the compose file; tests/e2e/test_compose.py runs it."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from repository import ROOT

from tunefarm_api.server import server_config
from tunefarm_app.settings import Settings

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MONITORING: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy" / "monitoring.yml").read_text())[
    "services"
]
OURS = {name: service for name, service in SERVICES.items() if name not in ("postgres", "valkey")}
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:?[-?][^}]*)?\}")


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for child in value.values() for text in texts(child)]
    if isinstance(value, list):
        return [text for child in value for text in texts(child)]
    return [value] if isinstance(value, str) else []


def test_every_part_of_a_farm_is_there() -> None:
    assert set(SERVICES) == {"postgres", "valkey", "migrate", "api", "worker", "gateway", "device"}


def test_no_secret_has_a_default() -> None:
    for text in texts(COMPOSE):
        for name, otherwise in VARIABLE.findall(text):
            if "PASSWORD" in name or "SECRET" in name or "KEY" in name:
                assert otherwise.startswith(":?"), name


def test_the_example_names_every_variable_and_no_password() -> None:
    example = dict(
        line.split("=", 1)
        for line in (ROOT / "deploy" / "env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    used = {name for text in texts(COMPOSE) for name, _ in VARIABLE.findall(text)}
    assert set(example) == used
    assert all(not value for name, value in example.items() if "PASSWORD" in name)


def test_only_api_and_gateway_are_published_and_by_default_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {
        "api": ["127.0.0.1:${TUNEFARM_PORT:-8000}:8000"],
        "gateway": ["${TUNEFARM_GATEWAY_ADDRESS:-127.0.0.1:9443}:9443"],
    }


def test_a_proxy_in_front_of_the_api_can_be_named() -> None:
    """Else all users behind it would have one address."""
    given = {
        name for name, service in OURS.items() if "TUNEFARM_TRUSTED_PROXIES" in service.get("environment", {})
    }
    assert given == {"api"}
    assert OURS["api"]["environment"]["TUNEFARM_TRUSTED_PROXIES"] == "${TUNEFARM_TRUSTED_PROXIES:-}"
    unset = Settings(
        database_url="sqlite:///x.db", broker_url="redis://127.0.0.1:1/0", store_dir=ROOT, trusted_proxies=""
    )
    assert server_config(FastAPI(), trusted_proxies=unset.trusted_proxies).proxy_headers is False


def test_what_runs_on_a_device_reaches_api_and_gateway_alone() -> None:
    for name in ("back", "measure", "devices"):
        assert COMPOSE["networks"][name] == {"internal": True}
    members = {
        network: {name for name, service in SERVICES.items() if network in service["networks"]}
        for network in COMPOSE["networks"]
    }
    assert members["devices"] == {"api", "gateway", "device"}
    assert members["measure"] == {"worker", "gateway"}
    assert SERVICES["device"]["networks"] == ["devices"]


def test_each_part_has_its_own_keys_of_the_farm_alone() -> None:
    keys = {
        name: {volume.split(":")[0] for volume in service.get("volumes", [])}
        & {"authority", "gateway", "tickets", "signing"}
        for name, service in SERVICES.items()
    }
    assert {name: held for name, held in keys.items() if held} == {
        "api": {"authority", "gateway", "tickets", "signing"},
        "gateway": {"gateway"},
        "worker": {"tickets", "signing"},
    }


def test_workers_connect_to_the_database_as_a_role_of_their_own() -> None:
    users = {
        name: re.findall(
            r"postgresql\+psycopg://(\w+):\$\{(\w+)", service["environment"]["TUNEFARM_DATABASE_URL"]
        )
        for name, service in OURS.items()
        if "TUNEFARM_DATABASE_URL" in service.get("environment", {})
    }
    owner = [("tunefarm", "POSTGRES_PASSWORD")]
    assert users == {
        "migrate": owner,
        "api": owner,
        "worker": [("tunefarm_worker", "POSTGRES_WORKER_PASSWORD")],
    }
    assert SERVICES["migrate"]["command"][-1] == "--worker-role=tunefarm_worker"
    held = {name for name, service in SERVICES.items() if "POSTGRES_ADMIN_PASSWORD" in str(service)}
    assert held == {"postgres"}


def test_workers_connect_to_the_queue_as_a_user_of_their_own() -> None:
    """tests/security/taken_over_worker/test_stolen_broker.py tries what that user may."""
    users = {
        name: re.findall(r"redis://(\w*):\$\{(\w+)", service["environment"]["TUNEFARM_BROKER_URL"])
        for name, service in OURS.items()
        if "TUNEFARM_BROKER_URL" in service.get("environment", {})
    }
    assert users == {"api": [("", "VALKEY_PASSWORD")], "worker": [("worker", "VALKEY_WORKER_PASSWORD")]}


@pytest.mark.parametrize("name", ["device", "gateway"])
def test_devices_and_the_gateway_hold_no_password(name: str) -> None:
    assert not [
        text for text in texts(SERVICES[name]) if "PASSWORD" in text or "key-file" in text or "keys" in text
    ]
    assert "back" not in SERVICES[name]["networks"]


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_every_service_has_a_health_check_and_comes_back(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted({**SERVICES, **MONITORING}))
def test_containers_can_do_little(name: str) -> None:
    service = {**SERVICES, **MONITORING}[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert 64 <= service["pids_limit"] <= 4096
    assert re.fullmatch(r"\d+[mg]|\$\{TUNEFARM_\w+_MEMORY:-\d+[mg]\}", service["mem_limit"])
    assert "privileged" not in service
    assert "docker.sock" not in str(service)
    assert service.get("init", False) is (name in OURS)
    # Their images begin as root, and have users of their own.
    assert service.get("user") == (name if name in ("postgres", "valkey") else None)


def test_the_queue_is_full_before_the_kernel_ends_its_server() -> None:
    script = SERVICES["valkey"]["command"][-1]
    assert "maxmemory-policy noeviction" in script
    (most,) = re.findall(r"^maxmemory \$\{TUNEFARM_QUEUE_MAXMEMORY:-(\d+)mb\}$", script, re.MULTILINE)
    (limit,) = re.findall(r":-(\d+)m\}$", SERVICES["valkey"]["mem_limit"])
    assert int(most) <= 0.75 * int(limit)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_container_has_a_folder_for_temporary_files(name: str) -> None:
    """The worker's and the API's is on the disk, and may hold programs: a worker loads there what it has built."""
    on_disk = "/tmp" in SERVICES[name].get("volumes", [])
    in_memory = any(mount.split(":")[0] == "/tmp" for mount in SERVICES[name].get("tmpfs", []))
    assert (on_disk, in_memory) == (name in ("api", "worker"), name not in ("api", "worker", "valkey"))


def test_every_image_of_others_is_named_by_its_digest() -> None:
    images = [service["image"] for service in (*SERVICES.values(), *MONITORING.values())]
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    images += re.findall(r"^ARG \w+_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    foreign = [image for image in images if not image.startswith("tunefarm-")]
    assert len(foreign) == 6
    for image in foreign:
        assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image
    for source in re.findall(r"^FROM (\S+)|--from=(\S+)", dockerfile, re.MULTILINE):
        assert "".join(source) in ("${PYTHON_IMAGE}", "${UV_IMAGE}", "uv", "build")


def test_images_and_checkout_are_made_by_one_version_of_uv() -> None:
    (of_images,) = re.findall(r"/uv:([\d.]+)@", (ROOT / "deploy" / "Dockerfile").read_text())
    (of_checkout,) = re.findall(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert of_images == of_checkout


@pytest.mark.parametrize("name", sorted(OURS))
def test_commands_are_ones_that_exist(name: str) -> None:
    command = OURS[name]["command"]
    if command[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(command[2]) is not None
    else:
        assert command[0] == "tunefarm"


def test_every_image_is_built_from_an_extra_that_exists() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    built = {}
    for service in OURS.values():
        if "build" in service:
            built[service["image"]] = service["build"]["args"]["EXTRA"]
            assert (ROOT / service["build"]["dockerfile"]).is_file()
    assert built == {"tunefarm-server": "server", "tunefarm-worker": "worker", "tunefarm-device": "device"}
    assert set(built.values()) <= set(extras)
    assert {service["image"] for service in OURS.values()} == set(built)


def test_volumes_and_networks_are_declared() -> None:
    for service in SERVICES.values():
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        sources = {volume.split(":")[0] for volume in service.get("volumes", [])}
        assert {source for source in sources if source[0] not in "./"} <= set(COMPOSE["volumes"])
        assert all((ROOT / source).is_file() for source in sources if source.startswith("./"))
        assert set(service.get("depends_on", {})) <= set(SERVICES)
