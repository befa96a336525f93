"""The tables of whole networks, from lines written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.models import table as page
from benchmarks.models.distance import TaskFacts, kernel_sum_sec, task_rows, weighted_share
from benchmarks.models.networks import MEASURED, OTHERS
from benchmarks.models.run import finished, result_of
from benchmarks.models.table import geomean, last_lines, main, make_table, task_table
from benchmarks.models.timing import Difference, Timing, best_onnxruntime, difference, torch_files
from benchmarks.search import json_lines

from tunefarm_tuning.measure.peak import Bandwidth, Peak, Rate


def one_rate(value: float) -> Rate:
    return Rate(one_core=value, all_cores=2.0 * value)


PEAK = Peak(
    key="k",
    threads=2,
    measured_at=0.0,
    flops_per_sec={"float32": one_rate(1e11)},
    bandwidth=(Bandwidth(working_set_bytes=1024, bytes_per_sec=one_rate(1e10)),),
)
FACTS = {
    "a": TaskFacts(
        workload_key="a", name="conv", weight=2, flops=5e7, dtype="float32", moved_bytes=1_000_000
    ),
    "b": TaskFacts(
        workload_key="b", name="pool", weight=1, flops=1e6, dtype="float32", moved_bytes=1_000_000
    ),
    "c": TaskFacts(workload_key="c", name="move", weight=1, flops=0.0, dtype=None, moved_bytes=None),
}
RECORDS = [{"workload_key": "a", "cost_sec": 1e-3}, {"workload_key": "b", "cost_sec": 2e-4}]
ROWS = task_rows(FACTS, RECORDS, PEAK, threads=1)


def line(model: str, threads: int, ratio: float, **facts: Any) -> dict[str, Any]:
    return {
        "kind": "network",
        "model": model,
        "threads": threads,
        "minutes": 20.0,
        "trials": 500,
        "tuning_sec": 1200.0,
        "latency_ms": {
            "artifact": 10.0 * ratio,
            "onnxruntime": 10.0,
            "untuned": 20.0 * ratio,
            "plain": 1000.0 * ratio,
            "artifact_call": 11.0,
            "onnxruntime_call": 10.0,
        },
        "spread": {"artifact": 0.03, "onnxruntime": 0.1},
        "onnxruntime_best": "onnxruntime",
        "ratio": ratio,
        "left_out": {"torch": "torch not installed"},
        "relative_difference": 3.2e-6,
        "kernel_sum_ms": 2.2,
        "num_tasks": 3,
        "num_covered": 2,
        "tasks": ROWS,
        "peak": PEAK.to_json(),
        "versions": {"apache-tvm": "0.27", "onnxruntime": "1.31"},
        "machine": {"cpu": "A CPU", "device": "a-cpu-2c", "target": "llvm", "commit": "abc"},
    } | facts


def test_a_geometric_mean() -> None:
    assert geomean([0.5, 2.0]) == pytest.approx(1.0)
    assert geomean([0.8, 0.8, 0.8]) == pytest.approx(0.8)
    assert geomean([]) is None


def test_the_table_has_every_model_the_mean_and_the_worst() -> None:
    text = make_table([line("net", 1, 0.5), line("other", 1, 2.0), line("net", 2, 0.9)])
    assert (
        "| net | 10 | 5 | 0.500 | 1.100 | 10 | 500 | – | – | 2.2 | 50 % | 2/3 | 500 | 20.0 | 3 %, 10 % | 3.2e-06 |"
        in text
    )
    one_thread, two = text.split("## 2 threads")
    assert "## 1 thread\n" in one_thread
    assert (
        "Geometric mean of 2: **1.000×** ONNX Runtime; worst other, 2.000×; 1 above 1.0 (other)" in one_thread
    )
    assert "; 0.500× untuned (2 models); 0.010× plain TVM (2 models)." in one_thread
    assert "Geometric mean of 1: **0.900×** ONNX Runtime; worst net, 0.900×; none above 1.0" in two
    assert "Left out: torch: torch not installed." in text
    assert "A CPU (a-cpu-2c), llvm. apache-tvm 0.27, onnxruntime 1.31. Commit abc." in text


def test_the_last_line_of_a_model_counts() -> None:
    lines = [line("net", 2, 0.9), line("net", 1, 0.5), {"kind": "other"}, line("net", 1, 0.4)]
    assert [(line["threads"], line["ratio"]) for line in last_lines(lines)] == [(1, 0.4), (2, 0.9)]
    newest = finished(lines, "net", 1)
    assert newest is not None
    assert newest["ratio"] == 0.4
    assert finished(lines, "net", 4) is None


def test_what_was_not_measured_is_left_empty() -> None:
    latency = {"artifact": 5.0, "onnxruntime": 10.0, "artifact_call": 5.0, "onnxruntime_call": 10.0}
    left_out = {"plain": "over 30 s an inference"}
    text = make_table([line("net", 1, 0.5, latency_ms=latency, left_out=left_out)])
    assert "| 0.500 | 0.500 | – | – | – | – |" in text
    assert "plain TVM (" not in text
    assert "Left out: plain: over 30 s an inference" in text
    head, rule, row = (line.count("|") for line in text.splitlines() if line.startswith("|"))
    assert head == rule == row


def test_nothing_yet() -> None:
    assert make_table([]) == "nothing is finished yet"
    assert task_table([]) == "nothing is finished yet"


def test_tables_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, out = tmp_path / "lines.jsonl", tmp_path / "models.md"
    json_lines.append(lines, line("net", 1, 0.5))
    main([str(lines), "--output", str(out), "--tasks", "-"])
    assert "--minutes 20 --threads 1`" in out.read_text()
    assert "| net | 10 | 5 |" in out.read_text()
    assert "## net, 1 thread(s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("models", "title", "head"),
    [
        (MEASURED, "Whole networks", "--output out/models.jsonl --minutes 20 --threads 1`"),
        (
            OTHERS,
            "Other whole networks",
            "--output out/others.jsonl --models others --minutes 20 --threads 1`",
        ),
        (OTHERS[:2], "Other whole networks", "--output out/others.jsonl --models squeezenet vgg11 --minutes"),
        (["vit", *MEASURED], "Whole networks", "--output out/models.jsonl --models measured vit --minutes"),
        (["unet", "mine"], "Whole networks", "--output out/models.jsonl --models unet mine.onnx --minutes"),
    ],
)
def test_a_page_says_what_it_is_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    models: Sequence[str],
    title: str,
    head: str,
) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    lines = tmp_path / "lines.jsonl"
    for model in models:
        json_lines.append(lines, line(model, 1, 0.5))
    main([str(lines)])
    stem = "models_others" if title.startswith("Other") else "models"
    assert {path.name for path in tmp_path.glob("*.md")} == {f"{stem}.md", f"{stem}_tasks.md"}
    text = (tmp_path / f"{stem}.md").read_text()
    assert text.startswith(f"# {title}\n")
    assert f"`python -m benchmarks.models.run {head}" in text
    assert f"benchmarks.models.table out/{stem.split('_')[-1]}.jsonl`" in text
    assert f"# Every task of the {title.lower()}\n" in (tmp_path / f"{stem}_tasks.md").read_text()


def test_a_page_says_that_the_untuned_network_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    lines = tmp_path / "lines.jsonl"
    json_lines.append(lines, line("net", 1, 0.5, left_out={"untuned": page.NOT_ASKED}))
    main([str(lines)])
    assert "--threads 1 --no-untuned`" in (tmp_path / "models.md").read_text()


def test_the_distance_to_the_roofline() -> None:
    conv, pool, move = ROWS
    # 50 MFLOP in 1 ms are half of the 100 GFLOP/s; a megabyte takes 0.1 ms.
    assert conv["share_of_roofline"] == pytest.approx(0.5)
    assert conv["memory_bound"] is False
    # 1 MFLOP in 0.2 ms, where a megabyte takes 0.1 ms.
    assert pool["share_of_roofline"] == pytest.approx(0.5)
    assert pool["share_of_peak"] == pytest.approx(0.05)
    assert pool["memory_bound"] is True
    assert move["share_of_roofline"] is None
    assert kernel_sum_sec(ROWS) == pytest.approx(2.2e-3)
    assert weighted_share(ROWS) == pytest.approx(0.5)
    assert weighted_share([move]) is None
    text = task_table([line("net", 1, 0.5, tasks=[pool | {"share_of_roofline": 0.61}, conv, move])])
    rows = [row for row in text.splitlines() if row.startswith("| ") and "calls" not in row]
    assert rows == [  # a task without a kernel may be the worst of all
        "| move | default | 1 | – | 0.0 | – | – | – |",
        "| conv | tuned | 2 | 1 | 50.0 | 50 % | 50 % | arithmetic |",
        "| pool | tuned | 1 | 0.2 | 1.0 | 5 % | 61 % | memory |",
    ]
    assert "float32 100 GFLOP/s, 10 GB/s over 0.000977 MiB" in text


def test_a_kernel_without_a_record_has_the_time_of_its_default_schedule() -> None:
    kernels = [
        {"workload_key": "a", "untuned_sec": [9.0]},
        {"workload_key": "b", "untuned_sec": [1e-4, 9.0, 5e-5]},
        {"workload_key": "c", "untuned_sec": []},
    ]
    conv, pool, move = task_rows(FACTS, RECORDS[:1], PEAK, threads=1, kernels=kernels)
    assert (conv["cost_sec"], pool["cost_sec"], move["cost_sec"]) == (1e-3, 1e-4, None)
    assert (conv["tuned"], pool["tuned"]) == (True, False)
    assert pool["share_of_roofline"] == pytest.approx(1.0)
    assert kernel_sum_sec([conv, pool, move]) == pytest.approx(2e-3)
    assert weighted_share([conv, pool, move]) == pytest.approx(0.5)


def test_a_ratio_is_of_rounds_and_against_the_faster_settings() -> None:
    timing = Timing(
        samples_sec={
            "artifact": [0.010, 0.020, 0.009],
            "onnxruntime": [0.030, 0.060, 0.030],
            "onnxruntime_still": [0.020, 0.040, 0.019],
        },
        left_out={"torch": "not installed"},
        difference=Difference(largest=1e-3, relative=1e-6),
    )
    assert best_onnxruntime(timing.samples_sec) == "onnxruntime_still"
    result = result_of(timing)
    assert result["ratio"] == pytest.approx(0.5)
    assert result["latency_ms"]["artifact"] == pytest.approx(10.0)
    assert result["spread"]["artifact"] == pytest.approx(1.1)
    assert result["onnxruntime_best"] == "onnxruntime_still"
    assert result["relative_difference"] == 1e-6


def test_differences_are_of_the_outputs_size() -> None:
    wanted = [np.array([3.0, -4.0], np.float32), np.zeros(2, np.float32)]
    outputs = [np.array([3.0, -4.5], np.float32), np.array([0.0, 0.25], np.float32)]
    apart = difference(outputs, wanted)
    assert apart.largest == pytest.approx(0.5)
    assert apart.relative == pytest.approx(0.25)  # of zeros, as it is


def test_what_is_not_installed_is_said() -> None:
    files, left_out = torch_files(Path("net.onnx"))
    assert set(files) | set(left_out) == {"torch", "torch_compile"}
    assert all("not installed" in why for why in left_out.values())
