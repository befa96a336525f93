"""``tunefarm backup`` and ``tunefarm restore`` on real folders."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from pyrage import x25519
from typer.testing import CliRunner, Result

from tunefarm.cli.main import make_app
from tunefarm.embedded import FarmHome
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import UnitOfWork

APP = make_app()

PLACES = ("TUNEFARM_DATABASE_URL", "TUNEFARM_STORE_DIR", "TUNEFARM_HOME")


def tunefarm(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(APP, [str(a) for a in arguments], env={**dict.fromkeys(PLACES), **variables})


@pytest.fixture
def home(tmp_path: Path) -> FarmHome:
    """A farm's folder with one model in it."""
    home = FarmHome(tmp_path / "home")
    home.prepare()
    schema.upgrade(home.database_url)
    blob = BlobStore(home.store_dir).put([bytes(range(256)) * 1000])
    engine = make_engine(home.database_url)
    with UnitOfWork(engine).write() as repos:
        repos.models.add(name="net", sha256=blob.sha256, size_bytes=blob.size_bytes)
    engine.dispose()
    return home


def models_of(url: str) -> list[str]:
    engine = make_engine(url)
    with UnitOfWork(engine).read() as repos:
        names = [model.name for model in repos.models.list().items]
    engine.dispose()
    return names


def test_there_and_back(home: FarmHome, tmp_path: Path) -> None:
    done = tunefarm("backup", tmp_path / "b.tar", "--home", home.path, "--json")
    assert done.exit_code == 0, done.output
    backup = json.loads(done.stdout)
    assert (len(backup["blobs"]), backup["missing"], backup["schema"]) == (1, [], schema.head())

    elsewhere = FarmHome(tmp_path / "elsewhere")
    restored = tunefarm("restore", tmp_path / "b.tar", "--home", elsewhere.path)
    assert restored.exit_code == 0, restored.output
    assert "1 models and artifacts" in restored.stdout
    assert models_of(elsewhere.database_url) == ["net"]
    assert BlobStore(elsewhere.store_dir).path(backup["blobs"][0]).stat().st_size == 256_000
    assert elsewhere.path.stat().st_mode & 0o077 == 0

    refused = tunefarm("restore", tmp_path / "b.tar", "--home", elsewhere.path)
    assert refused.exit_code == 3
    assert "not empty" in refused.stderr
    assert tunefarm("restore", tmp_path / "b.tar", "--home", elsewhere.path, "--replace").exit_code == 0


def test_a_running_farm_is_not_restored_over(home: FarmHome, tmp_path: Path) -> None:
    lock = home.lock()
    try:
        assert tunefarm("backup", tmp_path / "b.tar", "--home", home.path).exit_code == 0, (
            "but it is backed up"
        )
        refused = tunefarm("restore", tmp_path / "b.tar", "--home", home.path, "--replace")
    finally:
        os.close(lock)
    assert refused.exit_code == 3
    assert "a farm runs in" in refused.stderr


def test_paths_from_variables(home: FarmHome, tmp_path: Path) -> None:
    places = {"TUNEFARM_DATABASE_URL": home.database_url, "TUNEFARM_STORE_DIR": str(home.store_dir)}
    assert tunefarm("backup", tmp_path / "b.tar", **places).exit_code == 0
    half = tunefarm("backup", tmp_path / "c.tar", TUNEFARM_DATABASE_URL=home.database_url)
    assert half.exit_code == 2
    assert "--store-dir" in half.stderr
    assert not (tmp_path / "c.tar").exists()


def test_what_cannot_be(home: FarmHome, tmp_path: Path) -> None:
    missing = tunefarm("backup", tmp_path / "b.tar", "--home", tmp_path / "nowhere")
    assert missing.exit_code == 2
    assert "no such database" in missing.stderr
    assert not (tmp_path / "nowhere").exists(), "looking makes nothing"
    (tmp_path / "there").write_text("something")
    assert tunefarm("backup", tmp_path / "there", "--home", home.path).exit_code == 2
    assert (tmp_path / "there").read_text() == "something"
    nonsense = tunefarm("restore", tmp_path / "there", "--home", tmp_path / "new")
    assert nonsense.exit_code == 2
    assert "not a backup of tunefarm" in nonsense.stderr


@pytest.mark.exhaustive
def test_a_full_disk_leaves_no_part(home: FarmHome, tmp_path: Path) -> None:
    """A limit on the size of files is a disk that fills up in the middle."""
    target = tmp_path / "folder"
    target.mkdir()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tunefarm.cli.main",
            "backup",
            target / "b.tar",
            "--home",
            home.path,
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "os-error"
    assert list(target.iterdir()) == []
    assert tunefarm("backup", target / "b.tar", "--home", home.path).exit_code == 0


def test_an_encrypted_backup(home: FarmHome, tmp_path: Path) -> None:
    key = x25519.Identity.generate()
    identity = tmp_path / "identity"
    identity.write_text(str(key))
    identity.chmod(0o600)
    path = tmp_path / "b.age"
    written = tunefarm("backup", path, "--home", home.path, "--recipient", key.to_public())
    assert written.exit_code == 0, written.output
    assert "encrypted for 1 key" in written.stdout
    refused = tunefarm("restore", path, "--home", tmp_path / "new")
    assert refused.exit_code == 2
    assert "--identity FILE" in refused.stderr
    restored = tunefarm("restore", path, "--home", tmp_path / "new", "--identity", identity)
    assert restored.exit_code == 0, restored.output
    wrong = tunefarm("backup", tmp_path / "c.age", "--home", home.path, "--recipient", "age1nobody")
    assert wrong.exit_code == 2
    assert not (tmp_path / "c.age").exists()


def test_recipients_of_the_environment_are_lines(home: FarmHome, tmp_path: Path) -> None:
    """A key of SSH has spaces, and so may the path of a file."""
    ssh = (
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMvk1SS8EDXIoY4+3ID4qrrCnKO2+aYY5XNsfwZmV0QE someone@example.org"
    )
    file = tmp_path / "people who may.txt"
    file.write_text(f"{x25519.Identity.generate().to_public()}\n")
    variables = {"TUNEFARM_BACKUP_RECIPIENT": f"{ssh}\n{file}\n"}
    written = tunefarm("backup", tmp_path / "b.age", "--home", home.path, "--json", **variables)
    assert written.exit_code == 0, written.output
    assert json.loads(written.stdout)["recipients"] == 2
