"""The parts of the GPU benchmark that need no GPU: its plan, its requirements, its tables."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.gpu import check, farm_job, run
from benchmarks.gpu.machine import Machine, look, readings
from benchmarks.gpu.networks import to_half, weights_file
from benchmarks.gpu.plan import COMPILED, NEEDS_SEC, TORCH, TUNE, TUNED, UNTUNED, Step, next_step
from benchmarks.gpu.proofs import FAILED, PROVED, holds, prove
from benchmarks.gpu.table import table
from benchmarks.models.networks.encoder import build_encoder
from benchmarks.models.networks.graph import write_network
from nvml_answers import Driver
from onnx import TensorProto

from tunefarm_tuning.measure.gpu.baseline import BUDGET_SEC
from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS

NET = ("bert", "float16")
TORCH_SAYS = '{"torch": "2.11.0", "cuda": "13.0", "cudnn": 91002, "gpu": true}'


def line(kind: str, **facts: Any) -> dict[str, Any]:
    return {"kind": kind, "network": NET[0], "dtype": NET[1], **facts}


def test_parts_come_one_after_the_other_as_time_allows() -> None:
    lines: list[dict[str, Any]] = []
    done = []
    while step := next_step(lines, [NET], tune_sec=300, left_sec=1000):
        done.append((step.part, step.tune_sec))
        facts = {"tune_sec": step.tune_sec} if step.part == TUNE else {"samples_sec": [1.0], "searches": 1}
        lines.append(line(step.part, **facts))
    assert done == [(UNTUNED, 0), (TORCH, 0), (COMPILED, 0), (TUNE, 300), (TUNED, 0)]


def test_a_search_takes_what_time_is_left_and_goes_on_in_the_next_run() -> None:
    before = [line(part, samples_sec=[1.0]) for part in (UNTUNED, TORCH, COMPILED)]
    first = next_step(before, [NET], tune_sec=300, left_sec=220)
    assert first == Step(part=TUNE, network=NET[0], dtype=NET[1], tune_sec=100)
    shorter = next_step(before, [NET], tune_sec=300, left_sec=220, others_sec=30)
    assert shorter is not None
    assert shorter.tune_sec == 70
    lines = [*before, line(TUNE, tune_sec=100.0), line(TUNED, samples_sec=[1.0], searches=1)]
    again = next_step(lines, [NET], tune_sec=300, left_sec=1000)
    assert again is not None
    assert (again.part, again.tune_sec) == (TUNE, 200)
    lines.append(line(TUNE, tune_sec=200.0))
    last = next_step(lines, [NET], tune_sec=300, left_sec=1000)
    assert last is not None
    assert last.part == TUNED  # once more: the artifact is a new one


def test_failures_are_tried_again_in_the_next_run_and_not_in_this_one() -> None:
    lines = [line(UNTUNED, failed="it fell over")]
    step = next_step(lines, [NET], tune_sec=300, left_sec=1000)
    assert step is not None
    assert step.part == UNTUNED
    skipped = {(UNTUNED, *NET)}
    step = next_step(lines, [NET], tune_sec=300, left_sec=1000, skipped=skipped)
    assert step is not None
    assert step.part == TORCH


def test_nothing_is_begun_that_would_be_cut_off() -> None:
    assert next_step([], [NET], tune_sec=300, left_sec=min(NEEDS_SEC.values()) - 1) is None


def test_what_jobs_time_beside_the_artifact_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm_job, "not_installed", lambda _kind: "torch not installed")
    assert farm_job.others_sec() == 0.0
    monkeypatch.setattr(farm_job, "not_installed", lambda _kind: "")
    assert farm_job.others_sec() == BUDGET_SEC


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The only driver of this machine."""
    monkeypatch.setenv(ANSWERS, str(tmp_path / "nvml.json"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Driver(tmp_path / "nvml.json")


def torch_says(answer: str | Exception) -> Callable[[Sequence[str]], str]:
    def ask(_command: Sequence[str]) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_a_machine_with_everything_lacks_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.has("A10", "H100")
    monkeypatch.setattr("benchmarks.gpu.machine.check_can_build", lambda _target: None)
    machine = look("python", run=torch_says(TORCH_SAYS))
    assert machine.lacks == ()
    assert (machine.target, machine.gpu["name"]) == ("cuda/sm_86", "NVIDIA A10")
    assert machine.torch["cudnn"] == 91002
    assert run.impossible(machine) == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert look("python", run=torch_says(TORCH_SAYS)).target == "cuda/sm_90"
    json.dumps(machine.to_json())


def test_what_a_machine_lacks_is_said(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(torch: str | Exception = TORCH_SAYS) -> str:
        machine = look("python", run=torch_says(torch))
        assert bool(machine.gpu) == has_gpu
        return "; ".join(machine.lacks)

    has_gpu = False
    assert "no NVIDIA driver: library not found" in lacks()
    driver.fails()
    assert "no NVIDIA driver: lib rm version mismatch" in lacks()
    driver.has()
    assert "no GPU: the driver lists none" in lacks()
    driver.has("H100")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert "no GPU: this machine has no GPU '7'" in lacks()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    has_gpu = True
    assert "no PyTorch in python" in lacks(FileNotFoundError("python"))
    assert "sees no GPU" in lacks(TORCH_SAYS.replace("true", "false"))


def test_without_pytorch_the_rest_is_done() -> None:
    assert run.impossible(Machine(gpu={"name": "x"})) == (TORCH, COMPILED)
    assert UNTUNED in run.impossible(Machine(gpu={"name": "x"}, lacks=("no compiler: none",)))


def test_readings_of_a_gpu_that_is_gone_are_empty(driver: Driver) -> None:
    assert readings() == {}
    driver.has("H100")
    assert readings()["clock_mhz"] == 1980.0


def test_without_a_gpu_both_say_so_and_end_with_a_code_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nothing = Machine(lacks=("no NVIDIA driver: library not found",))
    monkeypatch.setattr(check, "look", lambda: nothing)
    monkeypatch.setattr(run, "look", lambda _python: nothing)
    assert check.main([]) == 4
    assert "no GPU here: nothing proved" in capsys.readouterr().out
    assert run.main(["--output", str(tmp_path / "gpu.jsonl")]) == run.NO_GPU == 4
    assert not (tmp_path / "gpu.jsonl").exists()


def test_proofs_are_told_one_by_one_and_a_failure_stops_none() -> None:
    lines: list[str] = []
    checks = [
        ("good", lambda: "seen"),
        ("bad", lambda: str(holds(False, "it does not"))),
        ("after", lambda: "seen"),
    ]
    assert prove(checks, lines.append) == FAILED
    assert lines == ["proved  good: seen", "FAILED  bad: it does not", "proved  after: seen", "2 of 3 proved"]
    assert prove(checks[:1], lines.append) == PROVED


def test_an_artifact_can_be_made_out_to_be_for_another_gpu(tmp_path: Path) -> None:
    library = b"code"
    manifest = {
        "format": "tunefarm-artifact",
        "format_version": 1,
        "entries": {"lib.so": {"sha256": "0", "size_bytes": len(library)}},
        "inputs": [],
        "outputs": [],
        "target": {"kind": "cuda", "arch": "sm_90"},
        "target_key": "cuda -arch=sm_90",
        "versions": {},
    }
    with zipfile.ZipFile(tmp_path / "one", "w") as artifact:
        artifact.writestr("manifest.json", json.dumps(manifest))
        artifact.writestr("lib.so", library)
    other = check.with_architecture(tmp_path / "one", tmp_path / "other", "sm_80")
    with zipfile.ZipFile(other) as archive:
        assert json.loads(archive.read("manifest.json"))["target"]["arch"] == "sm_80"
        assert archive.read("lib.so") == library


def test_the_table_shows_what_is_known() -> None:
    machine = {
        "gpu": {"name": "H100"},
        "torch": {},
        "lacks": ["no PyTorch in python: nothing to compare with"],
    }
    lines = [
        {"kind": "machine", "machine": machine},
        line(UNTUNED, samples_sec=[4e-3, 5e-3, 6e-3], max_rel_error=0.0),
        line(COMPILED, samples_sec=[2e-3], max_rel_error=0.0),
        line(TUNE, tune_sec=120.0),
        line(TUNED, samples_sec=[1e-3], searches=1, max_rel_error=1.2e-3),
        line(TORCH, failed="out of memory"),
    ]
    text = table(lines)
    assert "| bert | float16 | 5.000 | 1.000 | – | 2.000 | 0.50× | 5.0× | 120 | 1.2e-03 |" in text
    assert "no PyTorch" in text
    assert "- torch of bert float16: out of memory" in text


def test_a_network_of_float16_is_that_through_and_through(tmp_path: Path) -> None:
    model = to_half(build_encoder(layers=1, hidden=16, heads=2, feed_forward=32, sequence=4))
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    kinds = {
        value.type.tensor_type.elem_type
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    assert kinds == {TensorProto.FLOAT16}
    with np.load(weights_file(write_network(model, tmp_path / "net.onnx"))) as weights:
        assert weights["layer0.attention.query.weight"].dtype == np.float16
