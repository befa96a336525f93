"""Whoever takes over a device has what the device has: a token that is used up, and a credential for that device alone."""

from __future__ import annotations

import socket
import stat
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_process import running_api
from device_processes import AgentProcess
from waiting import wait_until

NAME = "box"


def ask(url: str, key: str, method: str, path: str, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.request(
        method, f"{url}{path}", headers=headers, json=body or None, trust_env=False, timeout=60
    )


def enrol(url: str, token: str, name: str = NAME) -> httpx.Response:
    return ask(url, token, "POST", "/v1/devices/enrol", name=name, device_key="pool")


ADMINISTRATORS = [
    ("POST", "/v1/keys", {"name": "mine", "scopes": ["admin"]}),
    ("GET", "/v1/keys", {}),
    ("POST", "/v1/devices/tokens", {"device_key": "pool"}),
    ("GET", "/v1/models", {}),
    ("GET", "/v1/jobs", {}),
    ("GET", "/v1/records", {}),
    ("GET", "/v1/webhooks", {}),
    ("GET", "/metrics", {}),
]


def test_what_a_device_beside_the_api_holds_is_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "farm"
    token_file = folder / "device-token"
    arguments = [f"--device-token-file={token_file}", f"--device-name={NAME}"]
    with running_api(folder, arguments=arguments) as api:
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
        token = token_file.read_text().strip()
        assert token != api.key
        enrolled = enrol(api.url, token)
        assert enrolled.status_code == 201, enrolled.text
        credential = enrolled.json()["api_key"]
        for key in (token, credential):
            for method, path, body in ADMINISTRATORS:
                answer = ask(api.url, key, method, path, **body)
                assert answer.status_code in (401, 403), (method, path, answer.text)
        assert enrol(api.url, token).status_code == 409, "a token whose credential was used is used up"
        assert ask(api.url, api.key, "POST", "/v1/keys", name="k", scopes=["read"]).status_code == 201
        assert api.stop() == 0
    with running_api(folder, arguments=arguments) as again:
        fresh = token_file.read_text().strip()
        assert fresh != token, "a device whose credential is gone can come back"
        assert enrol(again.url, fresh, "another").status_code == 409
        assert again.stop() == 0
    with running_api(folder, arguments=arguments):
        assert token_file.read_text().strip() == fresh, "an unused token stays"


def test_a_device_sends_the_farm_nowhere(tmp_path: Path) -> None:
    """It would name a service behind the farm as its tracker, which API and workers then connect to."""
    folder = tmp_path / "farm"
    token_file = folder / "device-token"
    arguments = [f"--device-token-file={token_file}", f"--device-name={NAME}"]
    with (
        socket.create_server(("127.0.0.1", 0)) as service,
        running_api(folder, arguments=arguments) as api,
    ):
        port = service.getsockname()[1]
        credential = enrol(api.url, token_file.read_text().strip()).json()["api_key"]
        device = {
            "name": NAME,
            "device_key": "pool",
            "target": {"kind": "llvm"},
            "info": {},
            "device_model": "m",
            "rpc_key": "k",
            "tracker_host": "127.0.0.1",
            "tracker_port": port,
        }
        refused = ask(api.url, credential, "POST", "/v1/devices", **device)
        checked = ask(api.url, api.key, "GET", "/v1/checks")
        assert checked.status_code in (200, 503), checked.text
        service.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            service.accept()
        assert (refused.status_code, refused.json()["code"]) == (422, "tracker-removed")
        del device["tracker_host"], device["tracker_port"]
        assert ask(api.url, credential, "POST", "/v1/devices", **device).status_code == 200


@pytest.mark.exhaustive
@pytest.mark.parametrize("arguments", [["--device-name=box"], ["--device-token-file=t"]])
def test_token_and_name_need_each_other(arguments: list[str], tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="need each other"),
        running_api(tmp_path / "farm", arguments=arguments),
    ):
        pass


@pytest.mark.exhaustive
def test_an_agent_replaces_its_credential_before_its_end(tmp_path: Path) -> None:
    """A credential that was copied from a device is worth nothing a while later, and the device goes on."""
    token_file, work_dir = tmp_path / "token", tmp_path / "device"
    valid_sec = 16.0
    with running_api(
        tmp_path / "farm",
        arguments=[f"--device-token-file={token_file}", f"--device-name={NAME}"],
        TUNEFARM_DEVICE_CREDENTIAL_DAYS=str(valid_sec / 86400),
        TUNEFARM_GATEWAY="127.0.0.1:1",  # heartbeats need none
        TUNEFARM_GATEWAY_DIR=str(tmp_path / "keys"),
    ) as api:
        agent = AgentProcess(api.url, work_dir, "--token-file", str(token_file), key="")
        try:
            credential_file = work_dir / "credential"
            wait_until(credential_file.exists, "the device to enrol")
            copied, began = credential_file.read_text().strip(), time.monotonic()
            wait_until(lambda: credential_file.read_text().strip() != copied, "another credential")
            assert time.monotonic() - began < valid_sec
            assert stat.S_IMODE(credential_file.stat().st_mode) == 0o600
            wait_until(
                lambda: ask(api.url, copied, "POST", "/v1/devices").status_code == 401,
                "the copied one to end",
            )
            with api.client() as client:
                (device,) = client.get("/v1/devices").json()["items"]
                seen_at = device["last_seen_at"]
                assert device["credential"]["expires_at"] > time.time() - 1

                def is_seen() -> bool:
                    return bool(client.get(f"/v1/devices/{device['id']}").json()["last_seen_at"] > seen_at)

                wait_until(is_seen, "a heartbeat with the new credential")
                entries = client.get("/v1/audit", params={"action": "key-rotated"}).json()["items"]
                assert entries[0]["details"]["device"] == NAME
        finally:
            agent.close()
