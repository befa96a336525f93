"""The contest times a network beside the runtimes that are installed, and goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.contest import run, table
from benchmarks.contest.run import main
from benchmarks.contest.table import make_table
from benchmarks.search import json_lines


@pytest.mark.exhaustive
def test_a_network_is_timed_once_and_a_missing_file_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (run, table):
        monkeypatch.setattr(module, "is_disturbed", lambda _line: False)  # other tests run beside it
    output = tmp_path / "contest.jsonl"
    arguments = [
        "--output",
        str(output),
        "--threads",
        "1",
        "--rounds",
        "2",
        "--bfloat16",
        "--offline",
        "--cache",
    ]
    arguments += [str(tmp_path), "--networks", "swift-f0"]
    assert main(arguments) == 0
    assert main(arguments) == 0
    (line,) = json_lines.load(output)
    assert {"artifact", "onnxruntime"} <= set(line["latency_ms"])
    assert ("artifact_bfloat16" in line["latency_ms"]) == (line["left_out"].get("artifact_bfloat16") is None)
    assert (line["threads"], line["minutes"], line["trials"]) == (1, 0.0, 0)
    assert line["relative_difference"] < 1e-3
    assert main([*arguments, "magika"]) == 1, "its wheel is not there"
    *_, missing = json_lines.load(output)
    assert missing["network"] == "magika"
    assert "latency_ms" not in missing
    assert missing["refused"] in capsys.readouterr().err
    page = make_table(json_lines.load(output))
    assert "| swift-f0 |" in page
    assert "## Not timed" in page


def test_an_unknown_name_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "contest.jsonl"
    assert main(["--output", str(output), "--networks", "no-such-network"]) == 2
    assert "no-such-network" in capsys.readouterr().err
    assert not output.exists()
