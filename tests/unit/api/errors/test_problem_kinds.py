"""Each code that the API answers with is documented, and every documented code is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tunefarm_api
import tunefarm_app
import tunefarm_db
import tunefarm_tuning
from tunefarm_api.errors.problem_kinds import PROBLEM_KINDS
from tunefarm_api.errors.problems import status_of
from tunefarm_tuning.core import errors

NOT_ANSWERED = {
    "backup-encrypted": "of the command restore",
    "bad-backup": "of the commands backup and restore",
    "bad-identity": "of the command restore",
    "bad-recipient": "of the command backup",
    "blob-not-found": "routes say artifact-not-kept",
    "cannot-be-scheduled": "of steps: an outcome of a task",
    "device-lease-lost": "of steps",
    "disk-full": "of steps: they wait for room",
    "impossible-times": "of steps: the device is held",
    "in-use": "of the command restore",
    "invalid-database-url": "of the start of a process",
    "invalid-limit": "of callers in the process: a route checks the limit before",
    "invalid-onnx": "of the import step: the model's error",
    "invalid-settings": "of the start of a process",
    "no-database": "of the command backup",
    "no-such-role": "of the command db upgrade",
    "not-encrypted": "of the command restore",
    "role-too-strong": "of the command db upgrade",
    "schema-locked": "of the command db upgrade",
    "wrong-database": "of the command db upgrade",
    "wrong-identity": "of the command restore",
    "no-envelope": "of the command restore",
    "no-gateway-here": "of steps: another worker may know the gateway",
    "no-keys-here": "of steps: another worker may have the keys",
    "no-signing-key": "of the start of a process, of the commands signing and backup, and of steps",
    "not-empty": "of the command restore",
    "other-toolchain": "of steps: why a kernel's source cannot be made",
    "signing-key-exists": "of the command signing",
    "schema-outdated": "of the start of a process",
    "source-not-wanted": "of steps",
    "step-abandoned": "of steps: the job's error",
    "step-not-found": "of steps",
    "toolchain-changed": "of steps: the job's error",
    "wrong-subject": "of the command restore",
}
"""Codes that the farm raises, and no request meets, with the reason."""


@cache
def parsed(*packages: Any) -> tuple[ast.Module, ...]:
    return tuple(_parsed(packages))


def _parsed(packages: tuple[Any, ...]) -> Iterator[ast.Module]:
    for package in packages:
        for path in Path(package.__file__).parent.rglob("*.py"):
            if path.name != "problem_kinds.py":
                yield ast.parse(path.read_text(encoding="utf-8"))


def raised() -> set[tuple[str, str]]:
    """Return (code, class name) of each error that the code behind requests raises with a code."""
    kinds = set()
    for module in parsed(tunefarm_db, tunefarm_app, tunefarm_api):
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for keyword in node.keywords:
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                        kinds.add((str(keyword.value.value), node.func.id))
    return kinds


def test_every_code_is_documented() -> None:
    codes = {code for code, _ in raised()}
    assert len(codes) > 60
    assert sorted(codes - set(PROBLEM_KINDS) - set(NOT_ANSWERED)) == [], "document them in problem_kinds.py"
    assert sorted(set(NOT_ANSWERED) & set(PROBLEM_KINDS)) == []
    assert sorted(set(NOT_ANSWERED) - codes) == []


def test_every_documented_code_can_come() -> None:
    missing = set(PROBLEM_KINDS)
    for module in parsed(tunefarm_db, tunefarm_app, tunefarm_api):
        missing -= texts_of(module)
    # The engine is as large as the rest together, and has few codes: what does not even contain one is not parsed.
    for path in Path(tunefarm_tuning.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if any(code in source for code in missing):
            missing -= texts_of(ast.parse(source))
    assert sorted(missing) == []


def texts_of(module: ast.Module) -> set[Any]:
    return {node.value for node in ast.walk(module) if isinstance(node, ast.Constant)}


def test_the_statuses_are_those_that_are_answered() -> None:
    for code, kind in raised():
        error = getattr(errors, kind, None)
        if error is not None and code in PROBLEM_KINDS:
            assert status_of(error("x", code=code)) == PROBLEM_KINDS[code].status, code


@pytest.mark.parametrize("code", PROBLEM_KINDS)
def test_the_form_of_a_code_and_of_its_meaning(code: str) -> None:
    assert code == code.lower()
    assert code.replace("-", "").isalnum()
    assert PROBLEM_KINDS[code].meaning.endswith(".")
    assert 400 <= PROBLEM_KINDS[code].status < 600
