"""The untuned network of a real compile: left out while an earlier compile knows its latency, and built late when that is asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tunefarm_tuning
from tunefarm_tuning import Artifact, History, verify
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.spans import SpanKind, recording
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.testing.records import TunedNet

ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)


def test_it_is_built_late_when_its_latency_is_asked_for_after_all(
    tiny_net: TunedNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other work on this machine would decide whether latencies are taken over.
    monkeypatch.setattr("tunefarm_tuning.compiler.phases.known_latency.is_quiet", lambda _latencies: True)
    monkeypatch.setattr("tunefarm_tuning.compiler.phases.known_latency._AS_LONG", 1e9)
    known: dict[str, Any] = {}

    def compile_net(name: str) -> tuple[Artifact, int, int]:
        """Return the artifact, and how often a network was built, and several were timed side by side."""
        findings = Findings(known.get, objects=tmp_path / "objects", references=tmp_path / "references")
        with recording() as log:
            artifact = tunefarm_tuning.compile(
                tiny_net.model,
                output=tmp_path / f"{name}.tunefarm",
                history=History(tiny_net.records, findings),
                limits=ANY_SPEED,
            )
        known.update(findings.noted)
        calls = Counter(span.name for span in log.spans if span.kind is SpanKind.CALL)
        return artifact, calls["compile: build_model"], calls["run: time_model"]

    first, built, timed = compile_net("first")
    assert built == 2
    second, built_again, timed_again = compile_net("second")
    assert built_again == 1, "the tuned network alone"
    assert timed_again < timed
    assert second.report["latency"]["untuned"] == first.report["latency"]["untuned"]

    latencies = [key for key, finding in known.items() if "latency" in finding]
    assert latencies
    for key in latencies:
        del known[key]
    third, built_late, _ = compile_net("third")
    assert built_late == 2
    assert third.report["latency"]["untuned"] != first.report["latency"]["untuned"]
    assert third.report["checks"]["ok"]
    assert verify(third.path, tiny_net.model).ok
