"""A machine becomes a device with an enrolment token, remains one, and is removed."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from replay_server import ReplayServer, replay_server
from sqlalchemy import text
from waiting import wait_until

from tunefarm_app.devices.commands import remove_device
from tunefarm_app.devices.enrolment import create_enrolment_token, enrol_devices
from tunefarm_app.identity.authority import device_identity
from tunefarm_db.values import DeviceState
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_workers.device.api_client import ApiClient
from tunefarm_workers.device.enrolment import credential
from tunefarm_workers.device.settings import AgentSettings

from .conftest import Hold


@pytest.fixture
def server(tmp_path: Path, by_gateway: dict[str, Any]) -> Iterator[ReplayServer]:
    folder = tmp_path / "server"
    folder.mkdir()
    with replay_server(folder, **by_gateway) as server:
        yield server


@pytest.mark.exhaustive
def test_an_agent_waits_for_the_farm_of_its_machine(
    server: ReplayServer, join: Callable[..., Any], tmp_path: Path
) -> None:
    farm_file, token_file = tmp_path / "farm.json", tmp_path / "token"
    options = (f"--farm-file={farm_file}", f"--token-file={token_file}")
    join("", *options).end(signal.SIGTERM)
    agent = join("", *options)
    _, token = create_enrolment_token(server.services, device_key="test")
    token_file.write_text(token)
    farm_file.with_suffix(".part").write_text(json.dumps({"url": server.url, "pid": 1}))
    assert agent.process.poll() is None
    farm_file.with_suffix(".part").replace(farm_file)
    agent.wait_online()


def test_an_answer_that_takes_long_is_waited_for() -> None:
    """The farm has used the token up by then: asking again would be refused."""

    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            time.sleep(7.0)
            answer = json.dumps({"name": "box", "api_key": "tfk_a"}).encode()
            self.send_response(201)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with closing(ApiClient(f"http://127.0.0.1:{server.server_port}", "tfk_token")) as api:
            assert api.enrol(["box"], "pool") == {"box": "tfk_a"}
        server.shutdown()


def test_from_token_to_removal(
    server: ReplayServer,
    join: Callable[..., Any],
    holding: Hold,
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, token = create_enrolment_token(server.services, device_key="test")
    agent = join(server.url, f"--token={token}")
    online = agent.wait_online()
    holding(device_identity(online["device_id"], agent.rpc_key), 1).assert_serves()
    kept = agent.work_dir / "credential"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_text().startswith("tfk_")
    assert kept.read_text().strip() != token
    with server.services.uow.read() as repos:
        device = repos.devices.find("box")
    assert device is not None
    assert device.state is DeviceState.ONLINE
    agent_info = device.info["agent"]
    assert len(agent_info["load"]) == 3
    assert all(
        isinstance(agent_info.get(name, 0.0), int | float) for name in ("temperature_celsius", "clock_mhz")
    )
    agent.end(signal.SIGTERM)

    # The same command again, and then none: it has its credential.
    for options in ([f"--token={token}"], []):
        again = join(server.url, *options)
        again.wait_online()
        again.end(signal.SIGTERM)
    last = join(server.url)
    last.wait_online()
    remove_device(server.services, device.id)
    wait_until(lambda: not last.events[-1]["online"], "the agent to notice")
    last.end(signal.SIGTERM)
    thrown_out = join(server.url)
    assert thrown_out.process.wait(120) == 2
    assert "device box was removed from this farm" in capfd.readouterr().err


def test_a_token_for_another_pool_is_refused(server: ReplayServer, join: Callable[..., Any]) -> None:
    _, token = create_enrolment_token(server.services, device_key="another")
    agent = join(server.url, f"--token={token}")
    assert agent.process.wait(120) == 2
    assert not (agent.work_dir / "credential").exists()


def test_a_folder_that_takes_no_credential_leaves_the_token_unused(
    server: ReplayServer, tmp_path: Path
) -> None:
    key, token = create_enrolment_token(server.services)
    (tmp_path / "file").touch()

    def settings_in(folder: Path) -> AgentSettings:
        return AgentSettings(
            url=server.url, token=token, api_key=None, device_key="test", name="box", work_dir=folder
        )

    with pytest.raises(InvalidInputError, match=r"cannot write into its folder .*file.*--work-dir"):
        credential(settings_in(tmp_path / "file"), lambda _: True)
    with server.services.uow.read() as repos:
        assert repos.api_keys.get(key.id).rotated_at is None
    assert credential(settings_in(tmp_path / "folder"), lambda _: True) is not None
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["credential"]
    options = [f"--url={server.url}", f"--token={token}", f"--work-dir={tmp_path / 'file'}"]
    agent = subprocess.run(
        [sys.executable, "-m", "tunefarm_workers.device", *options],
        capture_output=True,
        check=False,
        text=True,
    )
    assert agent.returncode == 2
    assert "name another with --work-dir" in agent.stderr
    assert "Traceback" not in agent.stderr


def test_a_token_that_was_used_is_told_as_such(server: ReplayServer, tmp_path: Path) -> None:
    _, token = create_enrolment_token(server.services)

    def enrol(name: str) -> str | None:
        settings = AgentSettings(
            url=server.url, token=token, api_key=None, device_key="test", name=name, work_dir=tmp_path / name
        )
        return credential(settings, lambda _: True)

    assert enrol("first") is not None
    with pytest.raises(InvalidInputError, match=r"it was used already, or has expired"):
        enrol("second")


def test_a_new_token_in_its_file_brings_a_device_back(
    server: ReplayServer, join: Callable[..., Any], tmp_path: Path
) -> None:
    """Its credential ended as somebody enrolled it again; before, only a restart made the agent read the file."""
    token_file = tmp_path / "token"
    token_file.write_text(create_enrolment_token(server.services)[1])
    agent = join(server.url, f"--token-file={token_file}")
    agent.wait_online()
    elsewhere, _ = create_enrolment_token(server.services, device_name="box")
    enrol_devices(server.services, elsewhere, names=["box"], device_key="test")
    wait_until(lambda: not agent.events[-1]["online"], "the agent to notice")
    seen = len(agent.events)
    token_file.write_text(create_enrolment_token(server.services, device_name="box")[1])
    agent.wait_online(after=seen)
    assert agent.process.poll() is None


@pytest.mark.parametrize("is_carried_out", [False, True])
def test_an_enrolment_whose_answer_is_lost_is_tried_again(is_carried_out: bool, tmp_path: Path) -> None:
    """It may have ended the stored credential: an agent that went on with that could never join again, and would not say why."""
    requests: list[str] = []

    class LosesTheFirst(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(self.path)
            if len(requests) == 1:
                return  # the connection ends without an answer
            answer = json.dumps({"name": "box", "api_key": "tfk_new", "detail": "unknown key"}).encode()
            self.send_response(401 if is_carried_out else 201)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), LosesTheFirst) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = with_stored_key(f"http://127.0.0.1:{server.server_port}", tmp_path)
        if is_carried_out:
            with pytest.raises(InvalidInputError, match="perhaps by a request whose answer was lost"):
                credential(settings, lambda _: False)
        else:
            assert credential(settings, lambda _: False) == "tfk_new"
        server.shutdown()
    assert len(requests) == 2


def test_a_stored_credential_is_used_while_the_api_is_away(tmp_path: Path) -> None:
    settings = with_stored_key("http://127.0.0.1:9", tmp_path)
    assert credential(settings, lambda _: pytest.fail("it waits")) == "tfk_stored"


def with_stored_key(url: str, folder: Path) -> AgentSettings:
    return AgentSettings(
        url=url,
        token="token",
        api_key="tfk_stored",
        device_key="test",
        name="box",
        work_dir=folder / "box",
    )


def test_a_farm_that_was_restored_learns_the_agents_key(
    server: ReplayServer, join: Callable[..., Any], holding: Hold
) -> None:
    """The backup is of the agent's last life: its key is worthless, and no worker would ever find the device."""
    _, token = create_enrolment_token(server.services)
    agent = join(server.url, f"--token={token}")
    agent.wait_online()
    with server.services.uow.write() as repos:
        repos._connection.execute(
            text("UPDATE devices SET rpc_key = 'dev-of-an-earlier-life', last_seen_at = 1.0")
        )

    def restored() -> bool:
        with server.services.uow.read() as repos:
            device = repos.devices.find("box")
        return device is not None and (device.rpc_key, device.state) == (agent.rpc_key, DeviceState.ONLINE)

    wait_until(restored, "the agent to register again")
    device_id = agent.events[-1]["device_id"]
    holding(device_identity(device_id, agent.rpc_key), 1).assert_serves()


@pytest.mark.exhaustive
def test_of_two_agents_with_one_name_the_later_has_the_device(
    server: ReplayServer, join: Callable[..., Any], tmp_path: Path
) -> None:
    """A cloned machine, say. They do not take it from each other in turn, and when the later goes the other has it."""
    credentials = {"key": server.api_key}
    first = join(server.url, **credentials)
    first.wait_online()
    second = join(server.url, f"--work-dir={tmp_path / 'clone'}", **credentials)
    second.wait_online()

    def key_on_record() -> str:
        with server.services.uow.read() as repos:
            device = repos.devices.find("box")
        assert device is not None
        return device.rpc_key

    wait_until(lambda: not first.events[-1]["online"], "the first to notice")
    seen = len(second.events)
    assert key_on_record() == second.rpc_key
    second.end(signal.SIGKILL)
    assert len(second.events) == seen, "it was never disturbed"
    with server.services.uow.write() as repos:
        repos._connection.execute(text("UPDATE devices SET last_seen_at = 1.0"))  # so long ago was that
    wait_until(lambda: key_on_record() == first.rpc_key, "the first to have it again")
    first.wait_online(after=len(first.events) - 1)
