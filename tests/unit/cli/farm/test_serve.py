"""Where `tunefarm serve` prints a link that signs a browser in, with all rights: not into a log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tunefarm.cli.base.output import Output
from tunefarm.cli.farm import serve as serve_module

LINK = "http://127.0.0.1:1/sign-in?link=tfl_x"


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The links that were made, for a farm that starts and ends at once."""
    urls: list[str] = []
    home = SimpleNamespace(path=Path("farm"), key_file=Path("farm/api-key"), log_dir=Path("farm/log"))
    farm = SimpleNamespace(
        url="http://127.0.0.1:1", api_key="tfk_x", home=home, device_key="local", wait=lambda: None
    )

    @contextmanager
    def started(*_: object) -> Iterator[SimpleNamespace]:
        yield farm

    monkeypatch.setattr(serve_module, "started_farm", started)
    monkeypatch.setattr(serve_module, "sign_in_url", lambda *_: urls.append(LINK) or LINK)
    return urls


def test_a_log_has_no_link_whatever_colours_it_is_to_have(
    links: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    serve_module.serve(Output())
    assert "`tunefarm dashboard` prints a link" in capsys.readouterr().out
    assert links == []  # nobody would use it


def test_a_terminal_has_one(
    links: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    serve_module.serve(Output())
    assert LINK in capsys.readouterr().out
    assert links == [LINK]


def test_a_program_has_one(links: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    serve_module.serve(Output(json=True))
    assert json.loads(capsys.readouterr().out)["dashboard"] == LINK
    assert links == [LINK]
