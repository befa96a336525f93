"""The commands and environments that the farm's processes start with."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tunefarm.embedded import processes, valkey
from tunefarm.embedded.home import FarmHome
from tunefarm.embedded.options import FarmOptions
from tunefarm_workers.device.settings import farm_url_in

BASE = {
    "PATH": "/bin",
    "TUNEFARM_URL": "https://another.farm",
    "TUNEFARM_API_KEY": "tfk_of_another_farm",
    "TUNEFARM_ROUND_SIZE": "4",
}


@pytest.fixture
def facts(tmp_path: Path) -> processes.Facts:
    home = FarmHome(tmp_path / "farm")
    home.prepare()
    options = FarmOptions(settings={"ENGINE": "replay"})
    return processes.Facts(
        home=home, options=options, valkey_server="valkey-server", valkey_port=1, gateway_port=2
    )


def test_every_need_is_a_process_that_comes_before() -> None:
    seen: set[str] = set()
    for process in processes.all_processes():
        assert seen.issuperset(process.needs)
        assert set(process.starts_after or ()) <= seen
        seen.add(process.name)


@pytest.mark.parametrize("process", [processes.Api(), processes.Worker()])
def test_farm_processes_get_settings_and_no_foreign_key(
    process: processes.FarmProcess, facts: processes.Facts
) -> None:
    environment = process.environment(facts, BASE)
    assert environment["TUNEFARM_ROUND_SIZE"] == "4"
    assert environment["TUNEFARM_ENGINE"] == "replay"
    assert environment["TUNEFARM_GATEWAY"] == "127.0.0.1:2"
    assert environment["TUNEFARM_GATEWAY_DIR"] == str(facts.home.gateway_dir)
    assert environment["TUNEFARM_SIGNING_KEY"] == str(facts.home.signing_key)
    assert facts.valkey_password in environment["TUNEFARM_BROKER_URL"]
    assert not {"TUNEFARM_URL", "TUNEFARM_API_KEY"} & environment.keys()


@pytest.mark.parametrize("process", [processes.Valkey(), processes.Gateway()])
def test_other_processes_get_nothing_of_ours(process: processes.FarmProcess, facts: processes.Facts) -> None:
    assert process.environment(facts, BASE) == {"PATH": "/bin"}


def test_the_device_gets_the_files_of_this_farms_address_and_of_its_token(facts: processes.Facts) -> None:
    assert processes.Device().environment(facts, BASE) == {"PATH": "/bin"}
    (file,) = [word for word in processes.Device().command(facts) if word.startswith("--farm-file=")]
    assert farm_url_in(Path(file.removeprefix("--farm-file="))) is None
    facts.home.announce("http://127.0.0.1:3")
    assert farm_url_in(Path(file.removeprefix("--farm-file="))) == "http://127.0.0.1:3"
    confined = processes.Device().environment(facts, {**BASE, "TUNEFARM_SANDBOX": "required"})
    assert confined["TUNEFARM_SANDBOX"] == "required"
    assert str(facts.home.key_file) not in " ".join(processes.Device().command(facts)), (
        "a device never has the farm's key"
    )
    token_file = str(facts.home.device_token_file)
    assert f"--token-file={token_file}" in processes.Device().command(facts)
    assert f"--device-token-file={token_file}" in processes.Api().command(facts)
    (name,) = [word for word in processes.Device().command(facts) if word.startswith("--name=")]
    assert f"--device-name={name.removeprefix('--name=')}" in processes.Api().command(facts)


def test_no_secret_is_on_a_command_line(facts: processes.Facts) -> None:
    facts.url = "http://127.0.0.1:3"
    facts.home.key_file.write_text("tfk_secret")
    for process in processes.all_processes():
        line = " ".join(process.command(facts))
        assert facts.valkey_password not in line
        assert "tfk_secret" not in line


def test_ports_are_kept_over_restarts(facts: processes.Facts) -> None:
    assert processes.Api().is_up(
        facts, 'noise\n{"event": "starts", "url": "no"}\n{"url": "http://127.0.0.1:3"}\n'
    )
    assert "--port=3" in processes.Api().command(facts)
    assert processes.Gateway().is_up(facts, '{"host": "127.0.0.1", "port": 9}')
    assert "--port=9" in processes.Gateway().command(facts)


@pytest.mark.parametrize(
    ("host", "reached"),
    [("0.0.0.0", "127.0.0.1:2"), ("::", "[::1]:2"), ("10.0.0.1", "10.0.0.1:2"), ("localhost", "localhost:2")],
)
def test_the_gateway_listens_where_the_api_does(facts: processes.Facts, host: str, reached: str) -> None:
    elsewhere = replace(facts, options=FarmOptions(host=host))
    assert f"--host={host}" in processes.Gateway().command(elsewhere)
    assert elsewhere.farm_environment()["TUNEFARM_GATEWAY"] == reached


@pytest.mark.parametrize(
    "process", [processes.Api(), processes.Gateway(), processes.Worker(), processes.Device()]
)
@pytest.mark.parametrize(
    "output", ["", "{", "{]\n", "null\n[]\n1\n", '{"url": 1, "port": "x", "online": true}']
)
def test_noise_is_no_sign_of_life(
    process: processes.FarmProcess, facts: processes.Facts, output: str
) -> None:
    assert not process.is_up(facts, output)


def test_valkeys_configuration_is_private(tmp_path: Path) -> None:
    path = valkey.write_configuration(tmp_path, port=1, password="secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    for line in ("bind 127.0.0.1", "requirepass secret", "appendonly yes", "maxmemory-policy noeviction"):
        assert f"{line}\n" in text


def test_there_is_a_valkey_here() -> None:
    assert Path(valkey.find_server()).exists()
