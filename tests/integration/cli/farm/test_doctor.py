"""``tunefarm doctor`` against the real API, with settings of its own, and where nothing runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from waiting import wait_until

from tunefarm.cli.main import make_app
from tunefarm_db import schema
from tunefarm_db.states.device import DeviceEvent

APP = make_app()


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    """Run the command where no server is named; the variables given are all there are."""

    def run(*arguments: object, **variables: str) -> Result:
        env: dict[str, str | None] = {
            **dict.fromkeys(
                ("TUNEFARM_URL", "TUNEFARM_API_KEY", "TUNEFARM_API_KEY_FILE", "TUNEFARM_DATABASE_URL")
            ),
            "TUNEFARM_HOME": str(tmp_path / "home"),
            "COLUMNS": "250",
            **variables,
        }
        return CliRunner().invoke(APP, ["doctor", *map(str, arguments)], env=env)

    return run


def checks(result: Result) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["where"], row["check"]): row for row in json.loads(result.stdout)["checks"]}


def test_it_asks_the_server(run: Any, farm: Any) -> None:
    result = run("doctor", "--json")
    by_check = checks(result)
    assert json.loads(result.stdout)["ok"] is True
    assert {row["verdict"] for row in by_check.values()} == {"ok"}
    assert {("here", "api"), ("here", "clock"), ("server", "database"), ("server", "gateway")} <= set(
        by_check
    )

    with farm.services.uow.write() as repos:
        (device,) = repos.devices.in_pool("pool")
        repos.devices.apply(device.id, DeviceEvent.QUARANTINE, "it smells burnt")

    def is_failed() -> bool:
        try:
            run("doctor", "--json", code=1)
        except AssertionError:
            return False
        return True

    wait_until(is_failed, "another answer than the one that is kept for two seconds")
    result = run("doctor", "--json", code=1)
    assert json.loads(result.stdout)["ok"] is False
    row = checks(result)["server", "devices"]
    assert (row["verdict"], row["message"]) == (
        "failed",
        "1 quarantined: dev-1 is quarantined (it smells burnt)",
    )
    text = run("doctor", code=1).stdout
    assert "failed   server  devices" in text
    assert row["advice"] in text


def test_keys_that_do_not_suffice(run: Any, farm: Any) -> None:
    for key in ("tfk_0000000000000000_nonsense", farm.new_key("device")):
        by_check = checks(run("doctor", "--json", code=1, TUNEFARM_API_KEY=key))
        assert by_check["here", "api"]["verdict"] == "failed"
        assert "scope read" in by_check["here", "api"]["advice"]


def test_a_server_that_is_away(alone: Any) -> None:
    result = alone("--json", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "tunefarm serve" in checks(result)["here", "api"]["advice"]


def test_nothing_anywhere(alone: Any, tmp_path: Path) -> None:
    result = alone("--json")
    assert result.exit_code == 1
    assert checks(result)["here", "farm"]["verdict"] == "failed"
    assert not (tmp_path / "home").exists(), "looking makes nothing"


def test_a_farm_at_rest(alone: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "store").mkdir(parents=True)
    schema.upgrade(f"sqlite:///{home}/tunefarm.db")
    result = alone("--json")
    by_check = checks(result)
    assert by_check["here", "farm"]["verdict"] == "warning"
    assert by_check["here", "database"]["verdict"] == "ok"
    assert ("here", "broker") not in by_check
    assert result.exit_code == 0, result.output
    schema.downgrade(f"sqlite:///{home}/tunefarm.db", "0003")
    result = alone("--json")
    assert result.exit_code == 1
    assert "db upgrade" in checks(result)["here", "database"]["advice"]


def test_the_settings_of_this_machine(alone: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/farm.db"
    schema.upgrade(url)
    settings = {
        "TUNEFARM_DATABASE_URL": url,
        "TUNEFARM_BROKER_URL": "redis://:a-password@127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(tmp_path / "store"),
    }
    result = alone("--json", **settings)
    by_check = checks(result)
    assert by_check["here", "database"]["verdict"] == "ok"
    assert by_check["here", "broker"]["verdict"] == "failed"
    assert ("here", "farm") not in by_check
    assert "a-password" not in result.output
    del settings["TUNEFARM_BROKER_URL"]
    result = alone("--json", **settings)
    assert "TUNEFARM_BROKER_URL" in checks(result)["here", "settings"]["message"]
