"""The limits that the engine passes to the compiler for a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tunefarm_app.engines import tvm as tvm_engine
from tunefarm_app.settings import Settings
from tunefarm_tuning.compiler.compile import Artifact
from tunefarm_tuning.core.cancellation import Cancellation


def test_a_compile_knows_when_its_step_is_stopped(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {}

    def compiled(*_args: Any, **named: Any) -> Artifact:
        arguments.update(named)
        return Artifact(path=tmp_path / "a.tunefarm", manifest={}, report={})

    monkeypatch.setattr(tvm_engine, "compile_model", compiled)
    monkeypatch.setattr(tvm_engine, "remote_device", lambda _device: None)
    engine = tvm_engine.TvmEngine(
        settings.model_copy(update={"compile_time_limit_sec": 700.0, "timing_sec": 3.0})
    )
    nobody = cast("Any", None)
    engine.compile(
        nobody,
        nobody,
        nobody,
        device=nobody,
        name="a",
        output=tmp_path / "a.tunefarm",
        cancellation=Cancellation(),
        on_progress=lambda _phase, _done: None,
    )
    assert arguments["limits"].whole_sec == 700.0
    assert arguments["limits"].timing_sec == 3.0
