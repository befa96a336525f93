"""ONNX Runtime as what a network is timed beside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import onnx_models
import pytest

from tunefarm_tuning import import_model
from tunefarm_tuning.core.spans import SpanKind, recording
from tunefarm_tuning.reference.onnx_runtime import Reference


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Reference]:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_models.residual_net().SerializeToString())
    onnx_runtime = Reference(import_model(path), tmp_path, threads=1, memory_bytes=8 << 30, timeout_sec=120.0)
    with closing(onnx_runtime):
        yield onnx_runtime


def test_what_was_prepared_is_timed(reference: Reference) -> None:
    inputs = [given.inputs for given in reference.make(0)]
    reference.prepare_timed(inputs[0])
    for file in (inputs[0], inputs[1], inputs[0]):
        assert reference.open_timed(file) > 0
        sample = reference.sample(2)
        assert len(sample["groups_sec"]) == 2
        assert min(sample["groups_sec"]) <= sample["sample_sec"] <= max(sample["groups_sec"])


@pytest.mark.exhaustive
def test_nothing_is_started_to_prepare(reference: Reference, tmp_path: Path) -> None:
    with recording() as log:
        reference.prepare_timed(tmp_path / "inputs.npz")
    assert not [noted for noted in log.spans if noted.kind is SpanKind.START]


def test_what_cannot_be_prepared_fails_when_it_is_timed(reference: Reference, tmp_path: Path) -> None:
    reference.make(0)
    reference.prepare_timed(tmp_path / "there-is-none.npz")
    with pytest.raises(Exception, match="there-is-none"):
        reference.open_timed(tmp_path / "there-is-none.npz")
