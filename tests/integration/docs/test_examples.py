"""What the pages' examples type is there: commands with their options, and the names that Python imports.

They are not run here: most need a farm, a model of the reader's, or minutes.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from repository import ROOT

from tunefarm.cli.main import make_app

PAGES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    )
    if path.name != "CHANGELOG.md"  # it names what is gone, too
)
_SHELLS = frozenset({"", "sh", "bash"})
_OPERATOR = re.compile(r"[|&;()<>]+|\$")
_BEFORE_COMMAND = re.compile(r"[|&;()<>]+|\$|\w+=\S*|sudo")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the languages and texts of the page's blocks."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after each ``tunefarm`` that the page types, in blocks and within sentences."""
    lines = [
        line
        for language, text in blocks(page)
        if language in _SHELLS
        for line in text.replace("\\\n", " ").splitlines()
    ]
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines += re.findall(r"`((?:\.venv/bin/)?tunefarm [^`\n]+)`", prose)
    for line in lines:
        yield from _commands_of(line)


def _commands_of(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote that goes on in the next line
        return
    while words:
        word = words.pop(0)
        if _BEFORE_COMMAND.fullmatch(word):
            continue
        end = next((at for at, each in enumerate(words) if _OPERATOR.fullmatch(each)), len(words))
        if re.fullmatch(r"(.*/)?tunefarm", word):
            yield words[:end]
        words = words[end:]


@cache
def root() -> Any:
    return typer.main.get_command(make_app())


def unknown(words: list[str]) -> str | None:
    """Return what of a command line is not there: a command, or an option that its help shows."""
    command, rest = root(), list(words)
    while rest and not rest[0].startswith("-") and (children := getattr(command, "commands", None)):
        if rest[0] not in children:
            return rest[0]
        command = children[rest.pop(0)]
    options = {
        name
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for name in (*parameter.opts, *parameter.secondary_opts, "--help", "-h")
    }
    given = (word.split("=")[0] for word in rest if re.match(r"-[-\w]", word))
    return next((name for name in given if name not in options and not re.fullmatch(r"-\d+", name)), None)


def test_what_is_not_there_is_noticed() -> None:
    assert unknown(["jobs", "show", "JOB"]) is None
    assert unknown(["jobs", "shew", "JOB"]) == "shew"
    assert unknown(["device", "join", "--url", "http://10.0.0.5:8000", "--host", "10.0.0.17"]) == "--host"
    assert list(
        _commands_of("TOKEN=tfk_… tunefarm device join --url X && make | tunefarm top --json # it")
    ) == [
        ["device", "join", "--url", "X"],
        ["top", "--json"],
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_their_options_are_there(page: Path) -> None:
    typed = [" ".join(words) for words in commands(page) if unknown(words) is not None]
    assert not typed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_that_python_imports_are_there(page: Path) -> None:
    for language, text in blocks(page):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tunefarm"):
                module = importlib.import_module(str(node.module))
                assert not [alias.name for alias in node.names if not hasattr(module, alias.name)]
