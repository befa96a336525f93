"""What the report says of the parts that ONNX Runtime runs."""

from __future__ import annotations

import pytest

from tunefarm_tuning.compiler.runtime_parts import PartTimes, parts_manifest, parts_report, random_warning
from tunefarm_tuning.workload.runtime_part import NotCompiled, OpenSpec, RuntimePart

PART = RuntimePart(
    nodes=(8, 9),
    inputs=(OpenSpec(name="boxes", shape=(1, 64, 4), dtype="float32"),),
    outputs=(OpenSpec(name="kept", shape=(None, 3), dtype="int64"),),
    operators=(("Gather", 1), ("NonMaxSuppression", 1)),
    reasons=(NotCompiled(operator="NonMaxSuppression", node="'nms'", reason="is not supported"),),
)


def test_shares_are_those_of_the_same_sample() -> None:
    # The machine was half as fast in the last sample, for the part as for the whole.
    times = PartTimes(whole_sec=(1.0, 1.0, 2.0), parts_sec=((0.25, 0.25, 0.5), (0.5, 0.5, 1.0)))
    report = parts_report([PART, PART], times)
    assert [part["share"] for part in report["parts"]] == [0.25, 0.5]
    assert report["onnxruntime_share"] == pytest.approx(0.75)
    assert [part["file"] for part in report["parts"]] == ["part_1.onnx", "part_2.onnx"]
    assert report["parts"][0]["reasons"][0]["node"] == "'nms'"


def test_a_share_is_at_most_the_whole() -> None:
    report = parts_report([PART], PartTimes(whole_sec=(1.0,), parts_sec=((1.01,),)))
    assert (report["parts"][0]["share"], report["onnxruntime_share"]) == (1.0, 1.0)


def test_parts_that_did_not_run_have_no_share() -> None:
    report = parts_report([PART], PartTimes(whole_sec=(1.0,), parts_sec=(), missing="no onnxruntime"))
    assert report["not_timed"] == "no onnxruntime"
    assert report["onnxruntime_share"] is None
    assert report["parts"][0]["median_sec"] is None


def test_a_network_that_is_compiled_whole_has_no_section() -> None:
    assert parts_report([], None) == {}
    assert parts_manifest([]) == []


def test_the_manifest_names_what_crosses() -> None:
    (part,) = parts_manifest([PART])
    assert part["outputs"] == [{"name": "kept", "shape": [None, 3], "dtype": "int64"}]
    assert "part_2.onnx: its results are random" in random_warning([1])
