"""``tunefarm signing``, ``verify``, and what ``jobs artifact`` writes, against the real API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replay_server import ReplayServer, replay_server

from tunefarm.client import Client
from tunefarm_app.identity.signing import create_signing_key, public_path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "signing" / "key.pem"
    create_signing_key(path)
    return path


@pytest.fixture
def farm(tmp_path: Path, key: Path) -> Iterator[ReplayServer]:
    (tmp_path / "farm").mkdir()
    with replay_server(tmp_path / "farm", signing_key=key) as server:
        server.add_device()
        yield server


@pytest.fixture
def job_id(farm: ReplayServer, tmp_path: Path) -> str:
    with Client(farm.url, farm.api_key) as client:
        job = client.tune(farm.write_model(tmp_path / "net.onnx", tasks=2), trials=8)
        job.wait()
        return job.id


def test_from_the_download_to_the_check(run: Any, farm: ReplayServer, job_id: str, tmp_path: Path) -> None:
    out, keys = tmp_path / "out", tmp_path / "keys.pub"
    done = json.loads(run("jobs", "artifact", job_id, "-o", out, "--json").stdout)
    assert done["envelope"] == f"{done['artifact']}.intoto.jsonl"
    artifact = Path(done["artifact"])
    listed = json.loads(run("signing", "list", "--json").stdout)
    assert listed[0]["is_current"]
    run("signing", "list", "-o", keys)
    no_server = {"TUNEFARM_URL": None, "TUNEFARM_API_KEY": None}
    checked = json.loads(run("verify", artifact, "--key", keys, "--json", **no_server).stdout)
    assert checked["verified"]
    assert checked["key_id"] == listed[0]["id"]
    assert checked["predicate"]["runDetails"]["metadata"]["invocationId"] == job_id
    table = run("verify", artifact, TUNEFARM_VERIFY_KEY=str(keys), **no_server).stdout
    for words in (job_id, "made from net", "checked on", "tunefarm 0", "no compiler"):
        assert words in table
    narrow = run("verify", artifact, TUNEFARM_VERIFY_KEY=str(keys), COLUMNS="72", **no_server).stdout
    assert "made from net" in narrow, "each value says what it is, in a narrow terminal, too"
    moved = artifact.with_name("moved.jsonl")
    Path(done["envelope"]).rename(moved)
    assert "there is no" in run("verify", artifact, "-k", keys, code=2).stderr
    run("verify", artifact, "-k", keys, "--envelope", moved)
    artifact.write_bytes(b"something else")
    refused = run("verify", artifact, "-k", keys, "--envelope", moved, "--json", code=2)
    assert json.loads(refused.stdout)["error"]["code"] == "wrong-subject"


def test_the_client(farm: ReplayServer, job_id: str, tmp_path: Path) -> None:
    with Client(farm.url, farm.api_key) as client:
        download = client.job(job_id).download(tmp_path / "out")
        beside = download.artifact.with_name(f"{download.artifact.name}.intoto.jsonl")
        assert beside.read_text() == client.jobs.envelope(job_id)
        assert client.signing.save(tmp_path / "k").read_text().count("BEGIN PUBLIC KEY") == 1
        other = client.tune(farm.write_model(tmp_path / "other.onnx", tasks=1), trials=4)
        other.wait()
        with farm.services.uow.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE artifacts SET envelope = NULL")
        again = client.jobs.download(other.id, tmp_path / "out", name=download.artifact.name)
        assert again == download.artifact
        assert not beside.exists(), "the statement was about the file that was there"
        assert client.jobs.envelope(other.id) is None


def test_create_and_rotate(run: Any, tmp_path: Path) -> None:
    key = tmp_path / "new" / "key.pem"
    created = json.loads(run("signing", "create", key, "--json").stdout)
    assert Path(created["public_keys"]) == public_path(key)
    assert "exists already" in run("signing", "create", key, code=3).stderr
    lines = run("signing", "rotate", TUNEFARM_SIGNING_KEY=str(key)).stdout.splitlines()
    assert [line.rpartition(", ")[2] for line in lines] == ["for workers only", "for everybody"]
    assert public_path(key).read_text().count("BEGIN PUBLIC KEY") == 2
    assert created["id"] in public_path(key).read_text()
    assert "no private key" in run("signing", "rotate", public_path(key), code=2).stderr


def test_a_farm_that_does_not_sign(run: Any, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with replay_server(tmp_path / "plain") as server:
        server.add_device()
        here = {"TUNEFARM_URL": server.url, "TUNEFARM_API_KEY": server.api_key}
        refused = run("signing", "list", "-o", tmp_path / "k", code=3, **here)
        assert "does not sign" in refused.stderr
        assert not (tmp_path / "k").exists()
        with Client(server.url, server.api_key) as client:
            job = client.tune(server.write_model(tmp_path / "net.onnx", tasks=1), trials=4)
            job.wait()
        done = json.loads(run("jobs", "artifact", job.id, "-o", tmp_path / "out", "--json", **here).stdout)
        assert done["envelope"] is None
        assert [path.suffix for path in (tmp_path / "out").iterdir()] == [".tunefarm"]
