"""The server that a client finds by itself: the environment's, else the one of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import AuthenticationError, Client, InvalidRequestError
from tunefarm.embedded import FarmHome


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TUNEFARM_URL", "TUNEFARM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUNEFARM_HOME", str(tmp_path / "farm"))


def test_none(connect: Any) -> None:
    with pytest.raises(InvalidRequestError, match="tunefarm serve") as caught:
        connect()
    assert caught.value.code == "no-server"


def test_the_farm_of_this_machine(server: Any, connect: Any, make_reply: Any, tmp_path: Path) -> None:
    server.replies = [make_reply(body={"id": "mdl_1", "state": "ready"})]
    home = FarmHome(tmp_path / "farm")
    home.prepare()
    home.key_file.write_text("tfk_here\n")
    lock = home.lock()
    with pytest.raises(InvalidRequestError):
        Client()  # it is not up yet
    home.announce(server.url)
    try:
        with connect() as client:
            assert client.url == server.url
            assert client.models.get("mdl_1").id == "mdl_1"
        with connect(api_key="tfk_other") as client:
            client.models.get("mdl_1")
    finally:
        os.close(lock)
    assert [request.headers["Authorization"] for request in server.requests] == [
        "Bearer tfk_here",
        "Bearer tfk_other",
    ]
    with pytest.raises(InvalidRequestError):
        Client()  # it is there no more


def test_what_is_named_counts_first(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEFARM_URL", "http://10.0.0.5:8000/")
    with connect() as client:
        assert client.url == "http://10.0.0.5:8000"
    with connect("http://10.0.0.6:8000") as client:
        assert client.url == "http://10.0.0.6:8000"
    assert repr(Client()) == "<tunefarm.Client http://10.0.0.5:8000>"


def test_without_a_key(server: Any, connect: Any, make_problem: Any) -> None:
    server.replies = [make_problem(401, "unauthenticated")]
    with connect(server.url) as client, pytest.raises(AuthenticationError) as refused:
        client.models.get("mdl_1")
    assert "TUNEFARM_API_KEY" in refused.value.__notes__[0]
    with connect(server.url, "tfk_wrong") as client, pytest.raises(AuthenticationError) as wrong:
        client.models.get("mdl_1")
    assert not hasattr(wrong.value, "__notes__")
