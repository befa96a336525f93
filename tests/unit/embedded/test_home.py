"""The farm's folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tunefarm.embedded.home import FarmHome
from tunefarm.endpoint import default_home
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError


@pytest.fixture
def home(tmp_path: Path) -> FarmHome:
    home = FarmHome(tmp_path / "farm")
    home.prepare()
    return home


def test_its_folders_are_private(home: FarmHome) -> None:
    for folder in (home.path, home.store_dir, home.log_dir, home.valkey_dir, home.device_dir):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    FarmHome(tmp_path).prepare()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "farm").write_text("")
    with pytest.raises(InvalidInputError, match=r"it is a file\. Give another folder with --home") as caught:
        FarmHome(tmp_path / "farm").prepare()
    assert caught.value.code == "bad-home"


def test_one_farm_per_folder(home: FarmHome) -> None:
    lock = home.lock()
    home.key_file.write_text("tfk_x\n")
    home.announce("http://127.0.0.1:4711")
    with pytest.raises(ConflictError, match="4711") as caught:
        FarmHome(home.path).lock()
    assert caught.value.code == "farm-running"
    os.close(lock)
    os.close(home.lock())


def test_a_running_farm_is_found(home: FarmHome) -> None:
    assert home.running() is None
    lock = home.lock()
    assert home.running() is None  # not up yet
    home.key_file.write_text("tfk_x\n")
    home.announce("http://127.0.0.1:4711")
    running = home.running()
    assert running is not None
    assert (running.url, running.api_key, running.pid) == ("http://127.0.0.1:4711", "tfk_x", os.getpid())
    os.close(lock)
    # A killed farm could not withdraw what it wrote.
    assert home.running() is None


def test_no_farm_runs_where_there_is_no_folder(tmp_path: Path) -> None:
    assert FarmHome(tmp_path / "none").running() is None
    assert not (tmp_path / "none").exists()


def test_large_logs_are_put_aside(home: FarmHome) -> None:
    for round_number in range(6):
        os.close(home.open_log("api"))
        with home.log_path("api").open("r+b") as file:
            file.truncate(6 << 20)
            file.write(str(round_number).encode())
    names = sorted(path.name for path in home.log_dir.iterdir())
    assert names == ["api.log", "api.log.1", "api.log.2", "api.log.3"]
    assert [path.read_bytes()[:1] for path in sorted(home.log_dir.iterdir())] == [b"5", b"4", b"3", b"2"]
    assert stat.S_IMODE(home.log_path("api").stat().st_mode) == 0o600


def test_the_environment_names_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNEFARM_HOME", str(tmp_path))
    assert default_home() == tmp_path
    assert FarmHome().database_url == f"sqlite:///{tmp_path}/tunefarm.db"
