"""The quick networks of the corpus come through, and what does not come through ends nothing else."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.corpus import run as corpus_run
from benchmarks.corpus.listing import Network, read_corpus, select
from benchmarks.corpus.run import main
from benchmarks.corpus.way import WayOptions, run_network
from benchmarks.corpus.wheels import network_file
from benchmarks.search import json_lines

CORPUS = read_corpus()
QUICK = select(CORPUS, quick=True)


def test_the_quick_subset_is_there() -> None:
    assert len(QUICK) >= 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("network", QUICK, ids=lambda network: network.name)
def test_a_quick_network_comes_through(network: Network, tmp_path: Path) -> None:
    """Their packages are part of the environment, so this needs no network connection."""
    file = network_file(network, tmp_path, download=False)
    line = run_network(network, file, WayOptions(rounds=0))
    assert line["status"] == "right", line
    assert line["checks"]["ok"]
    assert line["tasks"] > 0
    assert set(line["seconds"]) == {"import", "extract", "compile"}


@pytest.mark.exhaustive
def test_a_finished_network_is_not_run_again_and_a_refused_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (network,) = select(CORPUS, ["onnx-squeezenet"])
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network")
    monkeypatch.setattr(corpus_run, "_file", lambda *_: broken)
    output = tmp_path / "corpus.jsonl"
    arguments = ["--output", str(output), "--networks", network.name, "--cache", str(tmp_path)]
    assert main(arguments) == 1
    assert main(arguments) == 1
    (line,) = json_lines.load(output)
    assert (line["status"], line["stage"], line["code"]) == ("refused", "import", "not-protobuf")
    assert capsys.readouterr().err.count("onnx-squeezenet: refused (import, not-protobuf)") == 2
    assert main([*arguments, "--again"]) == 1
    assert len(json_lines.load(output)) == 2


def test_a_wheel_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    output = tmp_path / "corpus.jsonl"
    arguments = ["--output", str(output), "--networks", "magika", "--cache", str(tmp_path), "--offline"]
    assert main(arguments) == 1
    (line,) = json_lines.load(output)
    assert (line["status"], line["stage"]) == ("unavailable", "download")


def test_an_unknown_name_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "corpus.jsonl"
    assert main(["--output", str(output), "--networks", "no-such-network"]) == 2
    assert "no-such-network" in capsys.readouterr().err
    assert not output.exists()


def test_a_process_that_dies_is_a_failure_of_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import benchmarks.corpus.way as way

    class Dying(way.ChildProcess):
        def finish_call(self, *, timeout_sec: float) -> Any:
            os.kill(
                self.pid, signal.SIGKILL
            )  # within the call: between two calls the next one starts a new process
            return super().finish_call(timeout_sec=timeout_sec)

    monkeypatch.setattr(way, "ChildProcess", Dying)
    (network,) = select(CORPUS, ["onnx-squeezenet"])
    line = run_network(network, network_file(network, tmp_path, download=False), WayOptions(rounds=0))
    assert (line["status"], line["stage"]) == ("failed", "import")
    assert line["message"]


@pytest.mark.exhaustive
def test_the_runtimes_are_timed(tmp_path: Path) -> None:
    (network,) = select(CORPUS, ["swift-f0"])
    line = run_network(network, network_file(network, tmp_path, download=False), WayOptions(rounds=1))
    assert line["status"] == "right", line
    assert line["latency_ms"]["artifact"] > 0
    assert line["latency_ms"]["onnxruntime"] > 0
    assert line["ratio"] > 0


def test_architectures_need_an_interpreter_that_starts(tmp_path: Path) -> None:
    output = tmp_path / "corpus.jsonl"
    arguments = ["--output", str(output), "--networks", "tv-alexnet", "--cache", str(tmp_path)]
    assert main([*arguments, "--torch-python", str(tmp_path / "none")]) == 1
    (line,) = json_lines.load(output)
    assert (line["status"], line["code"]) == ("unavailable", "unavailable")


def test_an_import_with_other_shapes_is_refused(tmp_path: Path) -> None:
    (network,) = select(CORPUS, ["swift-f0"])
    file = network_file(network, tmp_path, download=False)
    line = run_network(replace(network, shapes={"sound": (1, 16000)}), file, WayOptions(rounds=0))
    assert (line["status"], line["stage"], line["code"]) == ("refused", "import", "unknown-input")
