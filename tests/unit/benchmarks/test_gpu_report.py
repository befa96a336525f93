"""`make gpu-report`: one file, whatever happened, and no GPU is no excuse for leaving out the versions."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.gpu import report
from benchmarks.gpu.report import INTERRUPTED, TIMED_OUT, run_module
from nvml_answers import Driver

from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The only driver of this machine."""
    monkeypatch.setenv(ANSWERS, str(tmp_path / "nvml.json"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Driver(tmp_path / "nvml.json")


class Parts:
    """Stand-ins of the checks and the benchmark, by the exit codes that they end with."""

    def __init__(self, check: int = 0, benchmark: int = 3) -> None:
        self.codes = {"benchmarks.gpu.check": check, "benchmarks.gpu.run": benchmark}
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], log: Path, _limit_sec: float) -> int:
        self.commands.append(list(command))
        if command[0] == "benchmarks.gpu.check":
            logs = Path(command[command.index("--folder") + 1], "farm", "logs")
            logs.mkdir(parents=True)
            (logs / "worker.log").write_text("x" * (2 << 20) + "the end")
            (logs.parent / "key").write_text("tfk_secret")
            log.write_text("proved  it runs: 3 µs\nFAILED  it tunes: why\nnoise\n1 of 2 proved\n")
        else:
            line = {"kind": "untuned", "network": "bert", "dtype": "float16", "samples_sec": [4e-3]}
            Path(command[command.index("--output") + 1]).write_text(json.dumps(line) + "\n")
            log.write_text("benchmarking\n")
        return self.codes[command[0]]


def files(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_without_a_gpu_it_says_so_and_has_the_versions(
    driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del driver  # there is none
    parts, output = Parts(), tmp_path / "out" / "report.zip"
    assert report.main(["--output", str(output)], run=parts) == 4
    assert parts.commands == []
    said = capsys.readouterr().out
    assert "no NVIDIA driver" in said
    assert "no GPU here: nothing proved" in said
    inside = files(output)
    assert set(inside) == {"report.md", "versions.json"}
    known = json.loads(inside["versions.json"])
    assert known["tunefarm"]["apache-tvm"]
    assert known["nvidia"]["nvidia-ml-py"]
    assert known["machine"]["gpu"] == {}
    assert "**No GPU here: nothing was proved.**" in inside["report.md"]
    assert list(output.parent.iterdir()) == [output]


def test_with_a_gpu_it_has_what_held_the_table_and_the_logs(driver: Driver, tmp_path: Path) -> None:
    driver.has("H100")
    parts, output = Parts(), tmp_path / "report.zip"
    assert report.main(["--output", str(output), "--minutes", "7"], run=parts) == 0
    assert [command[0] for command in parts.commands] == ["benchmarks.gpu.check", "benchmarks.gpu.run"]
    assert parts.commands[1][parts.commands[1].index("--minutes") + 1] == "7"
    inside = files(output)
    assert json.loads(inside["nvml.json"])["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    page = inside["report.md"]
    assert "NVIDIA H100 80GB HBM3, sm_90, driver" in page
    assert "- check: all of it (exit code 0)" in page
    assert "- benchmark: more to do (exit code 3)" in page
    assert "- proved  it runs: 3 µs\n- FAILED  it tunes: why\n- 1 of 2 proved" in page
    assert "noise" not in page
    assert "| bert | float16 | 4.000 |" in page
    log = inside["check/farm/logs/worker.log"]
    assert len(log) == 1 << 20
    assert log.endswith("the end")
    assert inside["benchmark.log"] == "benchmarking\n"
    assert not any("tfk_secret" in text for text in inside.values())


@pytest.mark.parametrize(
    ("parts", "code"),
    [(Parts(check=1), 1), (Parts(benchmark=1), 1), (Parts(check=TIMED_OUT), 1), (Parts(check=-9), 1)],
)
def test_what_failed_is_in_the_report_and_in_the_exit_code(
    driver: Driver, tmp_path: Path, parts: Parts, code: int
) -> None:
    driver.has("H100")
    output = tmp_path / "report.zip"
    assert report.main(["--output", str(output)], run=parts) == code
    assert (
        f"(exit code {next(c for c in parts.codes.values() if c not in (0, 3))})"
        in files(output)["report.md"]
    )


def test_a_benchmark_that_left_garbage_is_in_the_report(driver: Driver, tmp_path: Path) -> None:
    driver.has("H100")

    class Killed(Parts):
        def __call__(self, command: Sequence[str], log: Path, limit_sec: float) -> int:
            code = super().__call__(command, log, limit_sec)
            if command[0] == "benchmarks.gpu.run":
                Path(command[command.index("--output") + 1]).write_text('{"kind": "untuned"}\n\0\0\n')
            return code

    output = tmp_path / "report.zip"
    report.main(["--output", str(output)], run=Killed(check=1))
    inside = files(output)
    assert "benchmark.jsonl cannot be read" in inside["report.md"]
    assert inside["benchmark.jsonl"].startswith('{"kind": "untuned"}')
    assert "FAILED  it tunes: why\nnoise\n1 of 2 proved\n```" in inside["report.md"], (
        "the last lines, all of them"
    )


def test_what_the_user_interrupts_is_reported_as_far_as_it_came(driver: Driver, tmp_path: Path) -> None:
    driver.has("H100")
    parts, output = Parts(check=INTERRUPTED), tmp_path / "report.zip"
    assert report.main(["--output", str(output)], run=parts) == 1
    assert [command[0] for command in parts.commands] == ["benchmarks.gpu.check"]
    assert "- check: interrupted" in files(output)["report.md"]


def test_a_part_runs_in_a_process_of_its_own_for_a_limited_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run_module(["this"], log, 600.0) == 0
    assert "Beautiful is better than ugly" in log.read_text()
    assert run_module(["no_such_module"], log, 600.0) == 1
    assert "No module named no_such_module" in log.read_text()
    assert run_module(["http.server", "--bind", "127.0.0.1", "0"], log, 0.1) == TIMED_OUT
