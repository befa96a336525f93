"""The benchmark of a farm's size: a tiny farm of real processes, and its table on lines made by hand."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from benchmarks.scale import growth, rpc_cost, step_cost
from benchmarks.scale.fill import look
from benchmarks.scale.questions import questions
from benchmarks.scale.record import RECORDING, load_recording
from benchmarks.scale.run import main
from benchmarks.scale.table import make_table
from benchmarks.search import json_lines

pytestmark = pytest.mark.exhaustive


def test_two_devices_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, recording, table = tmp_path / "lines.jsonl", tmp_path / "recording.json.xz", tmp_path / "table.md"
    two = [task.to_json() for task in load_recording()[1:3]]
    with lzma.open(recording, "wt", encoding="utf-8") as file:
        json.dump(two, file)
    arguments = [str(lines), "--recording", str(recording), "--scale", "0.1"]
    main([*arguments, "--devices", "2", "--warm", "1", "--watch", "8", "--noisy"])
    (line,) = json_lines.load(lines)
    assert line["trials"] > 0
    assert line["per_sec"] > 0
    assert line["trial_sec"] >= line["recorded_sec"] > 0
    assert {name: part["processes"] for name, part in line["usage"].items()}["broker"] == 1
    assert line["usage"]["workers"]["processes"] >= 3
    assert line["usage"]["workers"]["pss_bytes"] > 0
    main([*arguments, "--table", str(table)])
    assert "sqlite, one job per device, tuner random, recorded seconds × 0.1" in table.read_text()
    assert capsys.readouterr().out.strip().endswith(table.read_text().strip())


def test_the_recording_is_whole() -> None:
    tasks = load_recording(RECORDING)
    assert len(tasks) == 20
    assert sum(len(task.trials) for task in tasks) > 400
    assert all(trial[3] > 0 and trial[4] > 0 for task in tasks for trial in task.trials)


def line(devices: int, trial_sec: float, *, jobs: int | None = None, **changes: Any) -> dict[str, Any]:
    usage = {"cpu_sec": 3.0, "pss_bytes": 2**20, "processes": 1}
    return {
        "asked": {
            "database": "sqlite",
            "devices": devices,
            "jobs": jobs or devices,
            "tuner": "random",
            "scale": 1.0,
        },
        "per_sec": devices / trial_sec,
        "trial_sec": trial_sec,
        "recorded_sec": 0.4,
        "watched_sec": 30.0,
        "usage": dict.fromkeys(("api", "workers", "broker"), usage),
        "idle": 0.5 if devices < 8 else 0.05,
        "elsewhere": 0.01,
        "cores": 2,
        **changes,
    }


def test_the_table_says_how_far_it_is_linear_and_what_is_used_up() -> None:
    lines = [line(1, 0.5), line(4, 0.41), line(4, 0.5), line(8, 1.0), line(4, 0.5, jobs=1, noisy=True)]
    alone, shared = make_table(lines).split("## ")[1:]
    assert "| 1 | 2.00 | 1.00 | 0.80 | 100.0 | 50.0 | 50.0 | 50.0 | 0.0 | 150.0 | 50% | 1% | 3 | 3 |" in alone
    assert "| 4 | 8.00 | 1.00 |" in alone
    assert "| 8 | 8.00 | 0.50 |" in alone
    assert "At least 0.9 of linear up to 4 devices." in alone
    assert "With 8 devices the farm uses 0.30 of the machine's 2 cores." in alone
    assert "noisy" not in alone
    assert "one job on all devices" in shared
    assert "| 4 | 8.00 | 1.00 |" in shared
    assert "noisy" in shared


def test_the_service_is_compared_with_the_engine_alone(capsys: pytest.CaptureFixture[str]) -> None:
    step_cost.main(["--trials", "48", "--statements"])
    printed = capsys.readouterr().out
    row = next(text for text in printed.splitlines() if text.startswith("| random | 48 |"))
    steps_ms, alone_ms, _, statements = (float(cell) for cell in row.strip("|").split("|")[2:])
    assert steps_ms > 0
    assert alone_ms > 0
    assert statements > 10
    assert "INSERT INTO trials" in printed


def test_databases_are_filled_and_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, url = tmp_path / "growth.md", f"sqlite:///{tmp_path / 'farm.db'}"
    arguments = ["--url", url, "--rows", "600", "--batch-sec", "0", "--output", str(output)]
    growth.main(arguments)
    growth.main([*arguments, "--explain"])  # the same again: nothing is filled twice
    filled = look(url)
    assert filled is not None
    assert filled.records == 600
    assert len(filled.workload_keys) == 20
    rows = [text for text in output.read_text().splitlines() if text.startswith("| ")]
    queries = questions(filled)
    assert len(rows) == 2 + len(queries) + sum(len(of_part) for of_part in queries.values())
    assert "| best records of 20 tasks |" in capsys.readouterr().out


def test_ways_to_measure_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    rpc_cost.main(["--runs", "2"])
    rows = [row.strip("| ").split(" | ") for row in capsys.readouterr().out.splitlines()[-4:]]
    (here, here_ms, nothing), *others = rows
    assert (here, float(nothing)) == ("timed here", 0.0)
    assert [way for way, *_ in others] == [
        "by TVM's RPC, a session per kernel",
        "by TVM's RPC, a session per round",
        "by the farm's gateway, a session per round",
    ]
    for _, took_ms, more_ms in others:
        assert float(took_ms) - float(here_ms) == pytest.approx(float(more_ms), abs=0.02)
