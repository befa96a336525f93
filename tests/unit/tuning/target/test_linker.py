"""Which linker makes a library for a device of another kind than this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunefarm_tuning.core.errors import InvalidInputError, TransientError
from tunefarm_tuning.target import linker
from tunefarm_tuning.target.linker import link, linker_command, missing_linker
from tunefarm_tuning.target.target import Target

RISCV = Target.from_json({"kind": "llvm", "mtriple": "riscv64-linux-gnu"})
"""A machine on which the tests do not run."""
HERE = Target.from_json({"kind": "llvm"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder on the PATH, without programs; without the package ``ziglang``."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    linker_command.cache_clear()
    yield tmp_path
    linker_command.cache_clear()


def put(folder: Path, name: str, script: str = "exit 0") -> str:
    program = folder / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def found(target: Target = RISCV) -> tuple[str, ...]:
    linker_command.cache_clear()
    return linker_command(target)


def test_linkers_that_need_no_libraries_come_first(folder: Path) -> None:
    driver = put(folder, "riscv64-linux-gnu-gcc")
    assert found() == (driver, "-nostdlib"), "a driver would ask for crti.o of a cross libc"
    put(folder, "ziglang/__init__.py")
    zig = put(folder, "ziglang/zig")
    assert found() == (zig, "ld.lld")
    put(folder, "ld.lld-9")
    put(folder, "ld.lld-x")
    newest = put(folder, "ld.lld-19")
    assert found() == (newest,)
    lld = put(folder, "ld.lld")
    assert found() == (lld,)
    own = put(folder, "riscv64-linux-gnu-ld")
    assert found() == (own,)


def test_here_any_linker_or_compiler_does(folder: Path) -> None:
    put(folder, "ld.lld")
    with pytest.raises(InvalidInputError, match="install one of ld, cc"):
        found(HERE)
    compiler = put(folder, "gcc")
    assert found(HERE) == (compiler,)


def test_the_package_to_install_is_named(folder: Path) -> None:
    with pytest.raises(InvalidInputError) as refused:
        found()
    assert refused.value.code == "no-linker"
    text = missing_linker(RISCV)
    assert "no linker for riscv64" in text
    assert "binutils-riscv64-linux-gnu or lld" in text
    assert "tunefarm[cross]" in text
    gpu = Target.from_json({"kind": "cuda", "arch": "sm_90", "host": RISCV.to_json()})
    assert missing_linker(gpu) == text, "a GPU's library runs on its host"
    put(folder, "ld.lld")
    linker_command.cache_clear()
    assert missing_linker(RISCV) == ""


def test_a_linker_that_fails_is_quoted(folder: Path) -> None:
    put(folder, "ld.lld", "echo 'unknown\\033[31m machine' >&2; exit 1")
    with pytest.raises(TransientError, match="unknown") as failed:
        link([folder / "a.o"], folder / "a.so", RISCV)
    assert failed.value.code == "link-failed"
    assert "\033" not in failed.value.message


def test_unreadable_folders_on_the_path_are_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lld = put(folder, "ld.lld-14")
    monkeypatch.setenv("PATH", f"{folder}/absent:{folder}")
    assert found() == (lld,)
    assert linker.missing_linker(RISCV) == ""
