"""A target that asks for oneDNN in vain is told why."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen.onednn import why_no_calls


def test_another_cpu_is_named() -> None:
    target = parse_target("llvm -mtriple=aarch64-linux-gnu")
    assert "x86" in why_no_calls(target)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="oneDNN is for x86 CPUs")
def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "C compiler" in why_no_calls(parse_target("llvm"))
