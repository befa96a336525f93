"""`tunefarm device trim`, where it must not."""

from __future__ import annotations

import pytest

from tunefarm_workers.device.trim import main


def test_an_environment_with_the_engine_is_not_trimmed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 1
    said = capsys.readouterr().err
    assert (
        "needs TVM's compiler: install `tunefarm[device]` into an environment of its own, and trim that"
        in said
    )
