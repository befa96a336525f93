"""What the contest's table and picture say of lines whose figures are known."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from benchmarks.contest.picture import draw
from benchmarks.contest.run import is_disturbed
from benchmarks.contest.table import best_float32, make_table, ratio


def line(network: str, minutes: float = 0.0, **latency_ms: float) -> dict[str, Any]:
    samples = {kind: [ms, 2 * ms, 4 * ms] for kind, ms in latency_ms.items()}  # a machine that slows down
    return {
        "kind": "contest",
        "network": network,
        "threads": 2,
        "minutes": minutes,
        "latency_ms": {kind: 2 * ms for kind, ms in latency_ms.items()},
        "samples_ms": samples,
        "machine": {"cpu": "a CPU", "commit": "abc"},
        "versions": {},
    }


BEHIND = line("behind", artifact=3.0, onnxruntime=4.0, openvino=2.0, openvino_default=1.0)
AHEAD = line("ahead", artifact=1.0, onnxruntime=4.5, onnxruntime_still=4.0, litert=2.0)


def test_the_best_is_the_fastest_of_those_that_compute_in_float32() -> None:
    assert best_float32(BEHIND) == "openvino"
    assert best_float32(AHEAD) == "litert"
    assert ratio(BEHIND) == pytest.approx(1.5)
    assert ratio(BEHIND, "openvino_default") == pytest.approx(3.0)


def test_the_table_sums_up_and_lists_the_slowest_first() -> None:
    refused = line("refused") | {"refused": "cannot be compiled"}
    del refused["latency_ms"]
    page = make_table([AHEAD, BEHIND, line("behind", 10.0, artifact=1.0, onnxruntime=2.0), refused])
    mean = f"{math.sqrt(1.5 * 0.5):.2f}"
    assert f"| untuned | 2 | 2 | {mean} | 1.50 | 1 of 2 | 3.00 | – | – |" in page
    assert "| 10 min of search | 2 | 1 | 0.50 | 0.50 | 1 of 1 | – | – | – |" in page
    assert page.index("\n| behind |") < page.index("\n| ahead |")
    assert "| behind | 6 | 8 | 4 | 2 | – | OpenVINO | 1.50 |" in page
    assert "| ahead | 2 | 8 | – | – | 4 | LiteRT | 0.50 |" in page
    assert "| refused | 2 | 0 | cannot be compiled |" in page


def test_bfloat16_is_compared_with_openvino_as_it_comes() -> None:
    page = make_table(
        [
            BEHIND,
            line("both", artifact=1.0, artifact_bfloat16=0.75, openvino=2.0, openvino_default=1.0, onnxruntime=4.0),
            line("narrow", artifact=2.0, artifact_bfloat16=3.0, openvino=2.0, openvino_default=1.0, onnxruntime=4.0),
            line("alone", artifact=1.0, artifact_bfloat16=1.0, onnxruntime=2.0),
        ]
    )  # fmt: skip
    assert f"| {math.sqrt(0.75 * 3.0):.2f} | 3.00 |" in page
    assert "| both | 2 | 1.5 | 8 | 4 | 2 | OpenVINO | 0.50 | 0.75 |" in page
    assert "| alone | 2 | 2 | 4 | – | – | ONNX Runtime | 0.50 | – |" in page
    assert "| behind | 6 | – | 8 | 4 | 2 | OpenVINO | 1.50 | – |" in page


def test_a_later_line_of_a_network_counts() -> None:
    page = make_table([AHEAD, line("ahead", artifact=4.0, onnxruntime=2.0)])
    assert "| ahead | 8 | 4 | ONNX Runtime | 2.00 |" in page


@pytest.mark.parametrize(
    "latency",
    [
        {"artifact": 1.0, "onnxruntime": 8.0, "onnxruntime_still": 4.0},
        {"artifact": 1.0, "artifact_call": 1.5, "onnxruntime": 8.0},
        {"artifact": 1.0, "artifact_call": 0.7, "onnxruntime": 8.0},
    ],
)
def test_what_was_timed_beside_other_work_is_named_and_not_counted(latency: dict[str, float]) -> None:
    busy = line("busy", **latency)
    assert is_disturbed(busy)
    page = make_table([AHEAD, busy])
    assert "| untuned | 2 | 1 | 0.50 |" in page
    assert "busy (2, " in page


def test_nothing_finished_is_said() -> None:
    assert "Nothing is finished" in make_table([])


def test_the_picture_has_a_row_of_dots_for_each_network() -> None:
    root = ET.fromstring(draw([BEHIND, AHEAD]))
    dots = [dot for dot in root.iter("{http://www.w3.org/2000/svg}circle") if dot.get("cy") != "43"]
    rows = {dot.get("cy") for dot in dots}
    assert len(rows) == 2
    assert len(dots) == 4 + 3
