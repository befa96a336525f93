"""The newcomer's path types the commands of the other pages."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import ModuleType

import pytest
from repository import ROOT

PAGE = ROOT / "docs" / "newcomer.md"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("newcomer_path", ROOT / "docs" / "newcomer_path.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def rows(text: str) -> list[tuple[str, float]]:
    """Return the steps and the seconds of the tables."""
    return [(does, float(sec)) for does, sec in re.findall(r"^\| (.+) \| ([0-9.]+) \|$", text, re.MULTILINE)]


def test_the_page_tells_of_the_whole_way() -> None:
    steps = [does for does, _ in rows(PAGE.read_text(encoding="utf-8"))]
    for part in (
        "git clone",
        "make setup",
        "tunefarm serve",
        "open the link",
        "drop",
        "*Artifact*",
        "tunefarm run",
    ):
        assert any(part in does for does in steps), part
    assert all(sec >= 0.0 for _, sec in rows(PAGE.read_text(encoding="utf-8")))


def test_what_is_typed_is_in_the_tutorial() -> None:
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    typed = re.findall(r"^\| `(.+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(typed) >= 8
    for command in typed:
        words = command.removeprefix(".venv/bin/").split()
        # Up to what names somebody's own file.
        assert " ".join(words[:2]) in tutorial, command


def test_it_is_written_so(script: ModuleType) -> None:
    steps = [script.Step("make setup", "", 61.04), script.Step("", "open the link", 0.26)]
    text = script.page_text(
        steps, steps[:1], cold_sec=61.0, warm_sec=9.0, received=500_000_000, disk=1_300_000_000, others=0.03
    )
    assert rows(text) == [
        ("`make setup`", 61.0),
        ("In the browser: open the link", 0.3),
        ("`make setup`", 61.0),
    ]
    assert "1 commands" not in text
    assert "1 min 01 s in all" in text
    assert "500 MB" in text
    assert "3%" in text
    assert script.machine().startswith(("1 core", "2 cores")) or " cores" in script.machine()
    assert 0.0 <= script.load_of_others(0.05) <= 1.0
    assert script.received_bytes() >= 0
