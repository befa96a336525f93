"""A second compile of a file compares with the outputs that the first one computed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import onnx_models
import pytest

from tunefarm_tuning import import_model
from tunefarm_tuning.process import ChildClosed
from tunefarm_tuning.reference.kept_outputs import KeptOutputs
from tunefarm_tuning.reference.onnx_runtime import Reference


def test_a_later_reference_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_models.residual_net().SerializeToString())
    model, kept = import_model(path), KeptOutputs(tmp_path / "references")

    def reference(name: str) -> Reference:
        (tmp_path / name).mkdir()
        return Reference(
            model, tmp_path / name, threads=1, memory_bytes=8 << 30, timeout_sec=120.0, kept=kept
        )

    with closing(reference("first")) as first:
        sets = first.make(0)
    later = reference("later")
    later.close()  # its child cannot be asked
    again = later.make(0)
    assert later.runs == first.runs
    for before, after in zip(sets, again, strict=True):
        assert [file.read_bytes() for file in before.files().values()] == [
            file.read_bytes() for file in after.files().values()
        ]
    for changed in ({"seed": 1}, {"seed": 0, "narrow": "bfloat16"}, {"seed": 0, "thorough": False}):
        with pytest.raises(ChildClosed):
            later.make(**changed)
