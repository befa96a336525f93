"""What the engine passes to the compiler for a step, and what it keeps ready."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tunefarm_app.engines import tvm as tvm_engine
from tunefarm_app.engines.interface import CompileTerms
from tunefarm_app.settings import Settings
from tunefarm_tuning.compiler.compile import Artifact
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.records.history import History


def nowhere(_device: Any, _gateway: Any) -> Any:
    """Return no address: nothing here measures."""


def test_a_compile_knows_when_its_step_is_stopped(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {}

    def compiled(*_args: Any, **named: Any) -> Artifact:
        arguments.update(named)
        return Artifact(path=tmp_path / "a.tunefarm", manifest={}, report={})

    monkeypatch.setattr(tvm_engine, "compile_model", compiled)
    engine = tvm_engine.TvmEngine(
        settings.model_copy(update={"compile_time_limit_sec": 700.0, "timing_sec": 3.0}), reach=nowhere
    )
    nobody = cast("Any", SimpleNamespace(parts=()))

    def compile_on(device: Any) -> CompileLimits:
        engine.compile(
            nobody,
            nobody,
            History(),
            CompileTerms(),
            device=device,
            output=tmp_path / "a.tunefarm",
            cancellation=Cancellation(),
            on_progress=lambda _phase, _done: None,
        )
        return cast("CompileLimits", arguments["limits"])

    limits = compile_on(object())
    assert (limits.whole_sec, limits.timing_sec, limits.timing_blocks) == (700.0, 3.0, 15)
    assert (limits.load_sec, limits.kernel_sec, limits.model_sec) == (300.0, 60.0, 600.0)
    assert arguments["baseline"]
    limits = compile_on(None)  # a draft, beside other work
    assert (limits.whole_sec, limits.timing_sec, limits.timing_blocks) == (700.0, 0.0, 3)
    assert limits.load_sec == limits.kernel_sec == limits.model_sec == 700.0, "others' work must not end it"
    assert limits.kernel_ratio == limits.model_ratio == float("inf"), "times tell nothing beside a search"
    assert arguments["keep_inputs"] == tmp_path / "a.npz"
    assert not arguments["baseline"]


def test_a_calibrated_device_finds_a_child_that_has_loaded_tvm(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    monkeypatch.setattr(tvm_engine, "measure_peak", lambda *_args, **_named: "peak")
    monkeypatch.setattr(tvm_engine.WARM, "keep", kept.append)
    engine = tvm_engine.TvmEngine(settings.model_copy(update={"warm_children": 2}), reach=nowhere)
    device = cast("Any", SimpleNamespace(info={}, target={"kind": "llvm"}))
    assert engine.measure_peak(device, cancellation=Cancellation()) == "peak"
    assert kept == [2]
