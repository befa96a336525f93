"""Uploads of large files resume after a break, with both kinds of client."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from api_process import WAIT_SEC, Api, running_api
from awaited_client import awaited_client
from waiting import wait_until

from tunefarm.client import NO_RETRY, Client, InvalidRequestError, UnavailableError

KINDS = pytest.mark.parametrize("kind", ["blocking", "awaited"])
CONTENT = b"\x08\x0a\0" + os.urandom(24 << 20)
FAR = 18 << 20


@contextmanager
def client_of(kind: str, api: Api, **options: Any) -> Iterator[Any]:
    if kind == "blocking":
        with Client(api.url, api.key, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner, awaited_client(runner, api.url, api.key, **options) as client:
        yield client


def kept(api: Api) -> int:
    """Return how much the server has of the one upload."""
    with api.client() as looking:
        (upload,) = looking.get("/v1/uploads").json()["items"]
        return int(upload["offset_bytes"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.matrix(every=2)
@KINDS
def test_the_server_is_killed_and_comes_back(kind: str, file: Path, tmp_path: Path) -> None:
    progressed: list[int] = []
    with ExitStack() as servers:
        api = servers.enter_context(running_api(tmp_path / "farm"))
        port = int(api.url.rpartition(":")[2])
        restarted = 0

        def progress(sent: int, total: int) -> None:
            nonlocal restarted
            assert total == len(CONTENT)
            progressed.append(sent)
            if sent >= FAR and not restarted:
                wait_until(lambda: kept(api), "a part to be kept")
                api.process.kill()
                api.process.wait(WAIT_SEC)
                servers.enter_context(running_api(tmp_path / "farm", port=port))
                restarted = len(progressed)

        with client_of(kind, api) as client:
            model = client.models.upload(file, shapes={"x": (1, 3)}, on_progress=progress)
    assert (model.name, model.size_bytes) == ("net", len(CONTENT))
    assert model.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert model.shapes == {"x": (1, 3)}
    assert progressed.count(0) == 1, "it began anew"
    assert 0 < min(progressed[restarted:]) <= FAR
    assert progressed[-1] == len(CONTENT)


@pytest.mark.exhaustive
@KINDS
def test_what_one_call_did_not_get_through_another_goes_on_with(
    kind: str, file: Path, tmp_path: Path
) -> None:
    with running_api(tmp_path / "farm") as api:

        def give_up(sent: int, _total: int) -> None:
            if sent >= FAR:
                wait_until(lambda: kept(api), "a part to be kept")
                raise KeyboardInterrupt

        with client_of(kind, api) as client, pytest.raises(KeyboardInterrupt):
            client.models.upload(file, on_progress=give_up)
        progressed: list[int] = []
        with client_of(kind, api) as client:
            model = client.models.upload(file, on_progress=lambda sent, _: progressed.append(sent))
            assert progressed[0] > 0
            assert progressed == sorted(progressed)
            again = client.models.upload(file)
        assert again.id == model.id
        assert model.sha256 == hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.exhaustive
@KINDS
def test_what_the_server_refuses_is_not_sent_on(kind: str, file: Path, tmp_path: Path) -> None:
    with running_api(tmp_path / "farm") as api, client_of(kind, api, retry=NO_RETRY) as client:
        file.write_bytes(b"PK\x03\x04" + CONTENT)
        with pytest.raises(InvalidRequestError) as caught:
            client.models.upload(file)
        assert caught.value.code == "not-protobuf"
        assert api.stop() == 0
        with pytest.raises(UnavailableError):
            client.models.upload(file)
