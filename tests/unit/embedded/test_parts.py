"""The commands and environments that the farm's parts start with."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tunefarm.embedded import parts, valkey
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
def facts(tmp_path: Path) -> parts.Facts:
    home = FarmHome(tmp_path / "farm")
    home.prepare()
    options = FarmOptions(settings={"ENGINE": "replay"})
    return parts.Facts(
        home=home, options=options, valkey_server="valkey-server", valkey_port=1, gateway_port=2
    )


def test_every_need_is_a_part_that_comes_before() -> None:
    seen: set[str] = set()
    for part in parts.all_parts():
        assert seen.issuperset(part.needs)
        assert set(part.starts_after or ()) <= seen
        seen.add(part.name)


@pytest.mark.parametrize("part", [parts.Api(), parts.Worker()])
def test_farm_processes_get_settings_and_no_foreign_key(part: parts.Part, facts: parts.Facts) -> None:
    environment = part.environment(facts, BASE)
    assert environment["TUNEFARM_ROUND_SIZE"] == "4"
    assert environment["TUNEFARM_ENGINE"] == "replay"
    assert environment["TUNEFARM_GATEWAY"] == "127.0.0.1:2"
    assert environment["TUNEFARM_GATEWAY_DIR"] == str(facts.home.gateway_dir)
    assert environment["TUNEFARM_SIGNING_KEY"] == str(facts.home.signing_key)
    assert facts.valkey_password in environment["TUNEFARM_BROKER_URL"]
    assert not {"TUNEFARM_URL", "TUNEFARM_API_KEY"} & environment.keys()


@pytest.mark.parametrize("part", [parts.Valkey(), parts.Gateway()])
def test_other_processes_get_nothing_of_ours(part: parts.Part, facts: parts.Facts) -> None:
    assert part.environment(facts, BASE) == {"PATH": "/bin"}


def test_the_device_gets_the_files_of_this_farms_address_and_of_its_token(facts: parts.Facts) -> None:
    assert parts.Device().environment(facts, BASE) == {"PATH": "/bin"}
    (file,) = [word for word in parts.Device().command(facts) if word.startswith("--farm-file=")]
    assert farm_url_in(Path(file.removeprefix("--farm-file="))) is None
    facts.home.announce("http://127.0.0.1:3")
    assert farm_url_in(Path(file.removeprefix("--farm-file="))) == "http://127.0.0.1:3"
    confined = parts.Device().environment(facts, {**BASE, "TUNEFARM_SANDBOX": "required"})
    assert confined["TUNEFARM_SANDBOX"] == "required"
    assert str(facts.home.key_file) not in " ".join(parts.Device().command(facts)), (
        "a device never has the farm's key"
    )
    token_file = str(facts.home.device_token_file)
    assert f"--token-file={token_file}" in parts.Device().command(facts)
    assert f"--device-token-file={token_file}" in parts.Api().command(facts)
    (name,) = [word for word in parts.Device().command(facts) if word.startswith("--name=")]
    assert f"--device-name={name.removeprefix('--name=')}" in parts.Api().command(facts)


def test_no_secret_is_on_a_command_line(facts: parts.Facts) -> None:
    facts.url = "http://127.0.0.1:3"
    facts.home.key_file.write_text("tfk_secret")
    for part in parts.all_parts():
        line = " ".join(part.command(facts))
        assert facts.valkey_password not in line
        assert "tfk_secret" not in line


def test_ports_are_kept_over_restarts(facts: parts.Facts) -> None:
    assert parts.Api().is_up(
        facts, 'noise\n{"event": "starts", "url": "no"}\n{"url": "http://127.0.0.1:3"}\n'
    )
    assert "--port=3" in parts.Api().command(facts)
    assert parts.Gateway().is_up(facts, '{"host": "127.0.0.1", "port": 9}')
    assert "--port=9" in parts.Gateway().command(facts)


@pytest.mark.parametrize(
    ("host", "reached"),
    [("0.0.0.0", "127.0.0.1:2"), ("::", "[::1]:2"), ("10.0.0.1", "10.0.0.1:2"), ("localhost", "localhost:2")],
)
def test_the_gateway_listens_where_the_api_does(facts: parts.Facts, host: str, reached: str) -> None:
    elsewhere = replace(facts, options=FarmOptions(host=host))
    assert f"--host={host}" in parts.Gateway().command(elsewhere)
    assert elsewhere.farm_environment()["TUNEFARM_GATEWAY"] == reached


@pytest.mark.parametrize("part", [parts.Api(), parts.Gateway(), parts.Worker(), parts.Device()])
@pytest.mark.parametrize(
    "output", ["", "{", "{]\n", "null\n[]\n1\n", '{"url": 1, "port": "x", "online": true}']
)
def test_noise_is_no_sign_of_life(part: parts.Part, facts: parts.Facts, output: str) -> None:
    assert not part.is_up(facts, output)


def test_valkeys_configuration_is_private(tmp_path: Path) -> None:
    path = valkey.write_configuration(tmp_path, port=1, password="secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    for line in ("bind 127.0.0.1", "requirepass secret", "appendonly yes", "maxmemory-policy noeviction"):
        assert f"{line}\n" in text


def test_there_is_a_valkey_here() -> None:
    assert Path(valkey.find_server()).exists()
