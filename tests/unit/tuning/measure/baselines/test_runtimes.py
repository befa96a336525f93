"""The names of runtimes to time beside, and which files they can read."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tunefarm_text.job_terms import BASELINES, RUNTIMES
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.baselines.runtimes import (
    KINDS,
    installed_version,
    parse_baselines,
    why_refused,
)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("", ()),
        ((), ()),
        ("onnxruntime", ()),
        ("litert, openvino,", ("openvino", "litert")),
        (["OpenVINO-Default", "openvino_default", "onnxruntime"], ("openvino_default",)),
    ],
)
def test_names_come_in_one_order_and_once(asked: str | list[str], names: tuple[str, ...]) -> None:
    assert parse_baselines(asked) == names


@pytest.mark.parametrize(
    ("asked", "named"), [("openvino,tensorrt", "tensorrt"), (["\x1b[31mred" * 20], "red")]
)
def test_an_unknown_name_is_refused_with_all_that_there_are(asked: str | list[str], named: str) -> None:
    with pytest.raises(InvalidInputError, match="there is no baseline") as refused:
        parse_baselines(asked)
    assert refused.value.code == "unknown-baseline"
    assert named in refused.value.message
    assert "the baselines are onnxruntime, openvino, openvino_default, litert" in refused.value.message
    assert "\x1b" not in refused.value.message
    assert len(refused.value.message) < 200
    assert refused.value.fields["known"] == list(BASELINES)


def test_every_runtime_has_a_title_and_a_module_that_opens_networks() -> None:
    assert set(BASELINES) == {"onnxruntime", *KINDS}
    assert set(BASELINES) < set(RUNTIMES)
    for kind in KINDS.values():
        assert kind.title == BASELINES[kind.name]
        if installed_version(kind) is not None:
            assert callable(getattr(import_module(kind.opener[0]), kind.opener[1]))


@pytest.mark.skipif(installed_version(KINDS["openvino"]) is None, reason="OpenVINO is not installed")
def test_openvino_is_imported_without_its_telemetry(tmp_path: Path) -> None:
    program = "import sys, tunefarm_tuning.measure.baselines.openvino as o; o.openvino.Core(); assert sys.modules['openvino_telemetry'] is None"
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_an_onnx_file_is_refused_by_name_of_the_format() -> None:
    assert (
        why_refused(KINDS["litert"], is_tflite=False)
        == "it reads only TFLite files, and the network's file is ONNX"
    )
    assert why_refused(KINDS["litert"], is_tflite=True) == ""
    assert {why_refused(KINDS["openvino"], is_tflite=is_tflite) for is_tflite in (True, False)} == {""}


def test_what_cannot_be_imported_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert installed_version(KINDS["openvino"]) is None
