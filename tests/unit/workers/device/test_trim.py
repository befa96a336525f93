"""`tunefarm device trim`, where it must not."""

from __future__ import annotations

import pytest

from tunefarm_workers.device.trim import main, said


def test_an_environment_with_the_engine_is_not_trimmed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 1
    said = capsys.readouterr().err
    assert (
        "needs TVM's compiler: install `tunefarm[device]` into an environment of its own, and trim that"
        in said
    )


def test_a_second_time_it_says_so() -> None:
    assert said(285_000_000, "llvm -num-cores=2") == "285 MB removed. This machine is llvm -num-cores=2"
    assert (
        said(0, "llvm -num-cores=2") == "TVM's compiler was removed before. This machine is llvm -num-cores=2"
    )
