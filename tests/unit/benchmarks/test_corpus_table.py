"""The page of the corpus: the last line of each network counts, and every refusal is told."""

from __future__ import annotations

from typing import Any

from benchmarks.corpus.listing import read_corpus
from benchmarks.corpus.table import make_table

CORPUS = read_corpus()


def a_line(network: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "network",
        "network": network,
        "status": "right",
        "stage": "compile",
        "seconds": {"import": 2.0, "extract": 3.0, "compile": 30.0, "time": 9.0},
        "tasks": 17,
        "file_bytes": 3_200_000,
        "latency_ms": {"artifact": 1.234, "onnxruntime": 2.0},
        "ratio": 0.62,
        "threads": 1,
        "machine": {"cpu": "A CPU", "commit": "abc"},
        **more,
    }


def refused(network: str, **more: Any) -> dict[str, Any]:
    line = a_line(network, status="refused", stage="import", code="unsupported-operator", message="no | such")
    return {key: line[key] for key in line if key not in ("latency_ms", "ratio", "tasks")} | more


def test_it_lists_what_came_through_and_what_did_not() -> None:
    page = make_table([a_line("magika"), refused("basic-pitch-tflite")], CORPUS)
    assert "| magika | file types | 3.2 | 17 | 35 | 1.23 | 2 | – | – | 0.62 |" in page
    assert (
        "| basic-pitch-tflite | music: notes | abc | refused | import | `unsupported-operator` | no \\| such |"
        in page
    )
    assert "| ONNX files | 1 | 1 | 0 | 0 | 0 | 100.0% |" in page
    assert "| TFLite files | 1 | 0 | 0 | 1 | 0 | 0.0% |" in page
    assert "| all | 2 | 1 | 0 | 1 | 0 | 50.0% |" in page
    assert "geometric mean of the ratios 0.62; 1 of 1" in page
    assert "abc (2)" in page


def test_the_last_line_of_a_network_counts() -> None:
    page = make_table([refused("magika"), a_line("magika")], CORPUS)
    assert "unsupported-operator" not in page
    assert "| all | 1 | 1 |" in page


def test_what_could_not_be_had_is_no_refusal() -> None:
    line = refused("magika", status="unavailable", stage="download", code="unavailable")
    page = make_table([line, a_line("swift-f0")], CORPUS)
    assert "| all | 1 | 1 | 0 | 0 | 0 | 100.0% |" in page
    assert f"{len(CORPUS) - 2} not run yet, 1 whose file could not be had" in page


def test_a_long_message_is_cut() -> None:
    page = make_table([refused("magika", message="x" * 1000)], CORPUS)
    assert "x" * 397 + "..." in page
    assert "x" * 398 not in page


def test_nothing_yet() -> None:
    assert "Nothing is finished yet" in make_table([], CORPUS)
