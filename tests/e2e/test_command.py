"""The command, the embedded farm and the demo, with real TVM, Celery, Valkey and RPC."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from repository import EXAMPLES
from waiting import wait_until

from tunefarm import load

PATIENCE_SEC = 600.0


class Shell:
    """A folder to run the command in; whatever is started from it carries a marker in its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = uuid.uuid4().hex
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TUNEFARM_")}
        (folder / "tmp").mkdir()
        self.env = {
            **plain,
            "TUNEFARM_HOME": str(folder / "home"),
            "TEST_MARKER": self.marker,
            "TMPDIR": str(folder / "tmp"),
        }

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tunefarm", *map(str, arguments)],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=PATIENCE_SEC)
        assert process.returncode == code, err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def write_model(self, name: str = "net.onnx", *options: str) -> Path:
        path = self.folder / name
        subprocess.run(
            [sys.executable, EXAMPLES / "tiny_convnet.py", path, *options], check=True, timeout=120
        )
        return path

    def processes(self) -> list[str]:
        commands = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.marker.encode() in (process / "environ").read_bytes():
                    commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return commands

    def expect_nothing_left(self) -> None:
        wait_until(lambda: not self.processes(), lambda: f"the end of {self.processes()}")
        assert list((self.folder / "tmp").iterdir()) == []


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.expect_nothing_left()


@dataclass(frozen=True)
class FinishedJob:
    """A job of one line, and the folder that it was done in."""

    shell: Shell
    model: Path
    result: dict[str, Any]

    @property
    def artifact(self) -> Path:
        return self.shell.folder / self.result["artifact"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """No server is configured: a farm comes, does the job, and goes."""
    shell = Shell(tmp_path_factory.mktemp("shell"))
    model = shell.write_model("net.onnx", "--kind", "mlp", "--dynamic-batch")
    options = ("--trials", "24", "--shape", "x=1..4,64@2:3,4", "-o", "out", "--name", "mlp", "--json")
    result = json.loads(shell.run("tune", model, *options).stdout)
    shell.expect_nothing_left()
    return FinishedJob(shell, model, result)


def test_the_whole_job_in_one_line(finished: FinishedJob) -> None:
    shell, result, artifact = finished.shell, finished.result, finished.artifact
    assert result["job"]["state"] == "succeeded"
    assert result["job"]["stop_reason"] == "trials"
    assert result["report"]["checks"]["ok"]
    # Which kernels are faster than untuned ones is the machine's to say; that each was found, ran and was right is ours.
    coverage = result["report"]["coverage"]
    assert coverage["tasks"] == coverage["covered"] + len(coverage["misses"]) > 0
    assert {miss["reason"] for miss in coverage["misses"]} <= {"slower-than-untuned"}
    latency = result["report"]["latency"]
    assert {latency[name]["threads"] for name in ("tuned", "untuned", "onnxruntime")} != {0}
    assert sum(result["outcomes"].values()) == 24
    shapes = result["report"]["shapes"]
    assert [(part["inputs"][0]["shape"], part["weight"]) for part in shapes] == [([2, 64], 3), ([4, 64], 1)]
    assert sorted(p.name for p in (shell.folder / "out").iterdir()) == [
        "mlp.report.html", "mlp.report.json", "mlp.tunefarm", "mlp.tunefarm.intoto.jsonl",
    ]  # fmt: skip

    np.save(shell.folder / "x.npy", np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64))
    ran = json.loads(
        shell.run("run", artifact, "--input", "x=x.npy", "--output-dir", "outputs", "--time", "--json").stdout
    )
    assert ran["outputs"][0]["shape"] == [1, 10]
    assert ran["latency"]["median_sec"] > 0
    assert ran["latency"]["others_cores"] >= 0
    y = np.load(shell.folder / "outputs" / "y.npy")
    code = (
        "import sys, json, numpy, tunefarm; f = tunefarm.load(sys.argv[1]);"
        "print(json.dumps(f(x=numpy.load('x.npy'))['y'].tolist()))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code, artifact],
        cwd=shell.folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
    )
    np.testing.assert_allclose(np.array(json.loads(loaded.stdout)), y, rtol=1e-5)
    expect_all_batches(artifact, finished.model)
    assert (
        "is 10, but the model takes 64"
        in shell.run("run", artifact, "--input", "outputs/y.npy", code=2).stderr
    )
    shell.expect_nothing_left()


@pytest.mark.exhaustive
def test_only_what_the_farm_signed_is_run(finished: FinishedJob) -> None:
    """The farm came for one job, and has signed it with a key of its own; another file is not run under that name."""
    shell, artifact, job_id = finished.shell, finished.artifact, finished.result["job"]["id"]
    keys = shell.folder / "home" / "signing" / "key.pem.pub"
    assert keys.with_suffix("").stat().st_mode & 0o777 == 0o600
    attested = json.loads(shell.run("verify", artifact, "--key", keys, "--json").stdout)
    details = attested["predicate"]["runDetails"]
    assert details["metadata"]["invocationId"] == job_id
    assert {"tunefarm", "apache-tvm", "llvm"} <= details["builder"]["version"].keys()
    shell.run("run", artifact, "--verify-key", keys)
    forged = shell.folder / "forged.tunefarm"
    forged.write_bytes(artifact.read_bytes() + b"\0")
    shutil.copy(f"{artifact}.intoto.jsonl", f"{forged}.intoto.jsonl")
    refused = json.loads(shell.run("run", forged, "--verify-key", keys, "--json", code=2).stdout)
    assert refused["error"]["code"] == "wrong-subject"
    shell.run("backup", "farm.tar")
    shell.run("restore", "farm.tar", "--home", shell.folder / "restored", "--verify-key", keys)
    shell.expect_nothing_left()


def expect_all_batches(artifact: Path, model: Path) -> None:
    """Call the artifact in its two shapes, in smaller batches, and in a batch that it was not tuned for."""
    tuned = load(artifact)
    batches = {row["inputs"]["x"][0]: row["batches"] for row in tuned.shapes}
    assert batches == {2: (1,), 4: (3,)}
    assert tuned.other_shapes is not None
    reference = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for batch in (2, 4, 1, 3, 7):
        x = np.random.default_rng(batch).standard_normal((batch, 64)).astype(np.float32)
        (expected,) = reference.run(["y"], {"x": x})
        np.testing.assert_allclose(tuned(x)["y"], expected, rtol=1e-3, atol=1e-4, err_msg=f"batch {batch}")


@pytest.mark.exhaustive
def test_serve_and_use_it(shell: Shell) -> None:
    """The other commands find the farm of the same folder; bad models get their own errors; Ctrl-C stops the farm."""
    model = shell.write_model()
    assert "no farm runs" in shell.run("models", "list", code=4).stderr
    served = shell.start("serve", "--port", "0", "--json")
    try:
        assert served.stdout is not None
        facts = json.loads(served.stdout.readline())
        key_file = Path(facts["key_file"])
        assert key_file.stat().st_mode & 0o777 == 0o600
        assert "runs in" in shell.run("serve", "--port", "0", code=3).stderr

        uploaded = json.loads(shell.run("models", "upload", model, "--json").stdout)
        assert uploaded["state"] == "ready"
        assert "conv2d" in shell.run("models", "tasks", uploaded["id"]).stdout
        truncated = shell.folder / "truncated.onnx"
        truncated.write_bytes(model.read_bytes()[:-500])
        refused = shell.run("models", "upload", truncated, "--json", code=2)
        assert json.loads(refused.stdout)["error"]["code"] in (
            "truncated-model",
            "not-protobuf",
            "invalid-onnx",
        )
        dynamic = shell.write_model("dynamic.onnx", "--dynamic-batch")
        refused = shell.run("tune", dynamic, "--trials", "4", "--json", code=2)
        error = json.loads(refused.stdout)["error"]
        assert error["code"] == "unknown-dimension"
        assert "--shape" in error["message"] or "shape" in error["message"]

        job = shell.start("tune", model, "--minutes", "30")
        # It searches as soon as it has a trial; then it is stopped.
        wait_until(
            lambda: any(j["trials"] > 0 for j in json.loads(shell.run("jobs", "list", "--json").stdout)),
            "a first trial",
            within_sec=PATIENCE_SEC,
            every_sec=2.0,  # each is a process
        )
        job.send_signal(signal.SIGINT)
        _, err = job.communicate(timeout=PATIENCE_SEC)
        assert job.returncode == 130, err
        assert {j["state"] for j in json.loads(shell.run("jobs", "list", "--json").stdout)} == {"cancelled"}
        assert len(shell.run("records", "list", "--json").stdout.splitlines()) > 0
    finally:
        served.send_signal(signal.SIGINT)
        _, err = served.communicate(timeout=PATIENCE_SEC)
    assert served.returncode == 0, err
    shell.expect_nothing_left()
    shell.run("db", "check")


@pytest.mark.exhaustive
def test_an_interrupted_tune_takes_its_farm_along(shell: Shell) -> None:
    model = shell.write_model()
    job = shell.start("tune", model, "--minutes", "30")
    assert job.stderr is not None
    lines: list[str] = []
    for line in job.stderr:
        lines.append(line)
        if line.startswith("tune") and " 0 trials" not in line:
            break
    assert lines[-1].startswith("tune"), "".join(lines)
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=PATIENCE_SEC)
    assert job.returncode == 143, "".join([*lines, err])
    assert "Traceback" not in err
    shell.expect_nothing_left()


@pytest.mark.exhaustive
def test_the_demo(shell: Shell) -> None:
    demo = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py", "--network", "tiny", "--seconds", "40", "--output", "result"],
        cwd=shell.folder,
        env=shell.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
    )
    # Which of them is faster is the machine's to say; all else has to hold.
    failed = [line for line in demo.stdout.splitlines() if line.lstrip().startswith("FAILED")]
    assert all("tuned is not slower than untuned" in line for line in failed), demo.stdout + demo.stderr
    assert demo.returncode == bool(failed), demo.stdout + demo.stderr
    for words in (
        "ONNX Runtime",
        "TVM, untuned",
        "the artifact (TVM, ",  # tuned, unless a busy machine was too slow
        "largest output difference",
        "kernels tuned",
        "trials",
    ):
        assert words in demo.stdout
    assert (shell.folder / "result" / "tiny.tunefarm").is_file()
    assert not (shell.folder / "home").exists()
