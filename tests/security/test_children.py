"""A child that a stranger's bytes have taken over: it gets at nothing of the farm's, whatever kind of child it is."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from intruder import Intruder

from tunefarm_tuning.compiler.kernel_source import kernel_source
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.frontend.conversion import convert_tflite
from tunefarm_tuning.frontend.extraction import extract_tasks
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.frontend.quantising import quantise_model
from tunefarm_tuning.measure.baselines.baseline import Baseline, BaselineNetwork, LocalChild
from tunefarm_tuning.measure.baselines.runtimes import KINDS as RUNTIMES
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.calibration import calibrate
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.device_functions import artifact_child
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.interfaces import DeviceInfo, MeasureInput
from tunefarm_tuning.measure.peak import measure_peak
from tunefarm_tuning.measure.runner.local import LocalRunner
from tunefarm_tuning.measure.runner.rpc import RpcRunner
from tunefarm_tuning.process import ChildLimits, ChildProcess
from tunefarm_tuning.process.model_child import ImportLimits
from tunefarm_tuning.process.sandbox import sandbox_state
from tunefarm_tuning.records.metaschedule import import_metaschedule
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.reference.samples import check_samples
from tunefarm_tuning.reference.single_run import run_in_onnxruntime
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TensorSpec, TuningTask, Workload

CPU = parse_target("llvm -mcpu=x86-64")
DEVICE = RemoteDevice(
    tracker_host="127.0.0.1", tracker_port=9, key="dev", info=DeviceInfo(model="m", num_cores=1, name="d")
)
TASK = TuningTask(
    workload=Workload(key="w", name="matmul", flops=1.0, args=(), ir="{}"), target=CPU, weight=1
)
LIMITS = ImportLimits()
PROGRAMS = {"fork", "run a program"}
STALL_SEC = 60.0


def model_of(path: Path) -> Model:
    spec = TensorSpec(name="x", shape=(1,), dtype="float32")
    return Model(path=path, sha256="", inputs=(spec,), outputs=(), operators=(), opset=17, num_params=0)


@dataclass(frozen=True)
class Kind:
    """One kind of child: a call that starts it, what it may do by design, and its module if the call starts others before."""

    call: Callable[[Path, Path], object]
    may: frozenset[str] = frozenset()
    after: str = ""


def _build(_blob: Path, folder: Path) -> None:
    with LocalBuilder(workers=1, work_dir=folder) as builder:
        builder.config_space(TASK)


def _measure(runner: Any, folder: Path) -> None:
    with closing(runner):
        runner.run([MeasureInput(task=TASK, artifact_path=folder / "kernel.so")])


def _run(device: RemoteDevice | None, folder: Path) -> None:
    with closing(DeviceRun(device, kind="cpu", threads=1, limits=ChildLimits(), folder=folder)) as runner:
        runner.connect()


def _compile(blob: Path, folder: Path) -> None:
    objects = folder / "objects"
    with closing(CompileSession(model_of(blob), CPU, folder, CompileLimits(), objects=objects)) as session:
        session.load()


def _reference(blob: Path, folder: Path) -> None:
    reference = Reference(model_of(blob), folder, threads=1, memory_bytes=8 << 30, timeout_sec=STALL_SEC)
    with closing(reference):
        reference.make(0)


def _baseline(blob: Path, folder: Path) -> None:
    arrays = folder / "inputs.npz"
    np.savez(arrays, x=np.zeros(1, np.float32))
    input_set = InputSet(inputs=arrays, expected=arrays)
    network = BaselineNetwork(path=blob, names=("x",), outputs=("y",), input_set=input_set, threads=1)
    child = LocalChild(network, ChildLimits())
    with closing(Baseline(RUNTIMES["openvino"], network, child, timeout_sec=STALL_SEC)) as baseline:
        baseline.open_timed()


def _samples(blob: Path, folder: Path) -> None:
    samples = folder / "samples.npz"
    np.savez(samples, x=np.zeros(1, np.float32))
    check_samples(samples, model_of(blob), limits=LIMITS)


def _quantise(blob: Path, folder: Path) -> None:
    samples = folder / "samples.npz"
    np.savez(samples, x=np.zeros(1, np.float32))
    quantise_model(model_of(blob), samples, folder / "quantised.onnx", limits=LIMITS)


def _database(_blob: Path, folder: Path) -> None:
    code = b"{}"
    packed = base64.b64encode(len(code).to_bytes(8, "little") + code).decode()
    (folder / "database_workload.json").write_text(json.dumps(["0", packed]))
    (folder / "database_tuning_record.json").write_text(json.dumps([0, [[], [1e-3], None, []]]))
    import_metaschedule(folder, device_model="m", target=CPU)


def _artifact(blob: Path, _folder: Path) -> None:
    with artifact_child([blob], ChildLimits()) as child:
        child.call("check", {}, timeout_sec=STALL_SEC)


def _evolve(_blob: Path, _folder: Path) -> None:
    with ChildProcess("tunefarm_tuning.tvm.children.evolutionary") as child:
        child.call("open", {}, timeout_sec=STALL_SEC)


KINDS = {
    "import": Kind(lambda blob, _: import_model(blob)),
    "extract": Kind(lambda blob, _: extract_tasks(model_of(blob), CPU)),
    "convert": Kind(lambda blob, folder: convert_tflite(blob, folder / "out.onnx")),
    "run once": Kind(lambda blob, _: run_in_onnxruntime(model_of(blob), [], LIMITS)),
    "reference": Kind(_reference),
    "baseline": Kind(_baseline),
    "samples": Kind(_samples),
    "quantise": Kind(_quantise, after="quantise_child"),
    "database": Kind(_database),
    "artifact": Kind(_artifact),
    "source": Kind(lambda _blob, _folder: kernel_source(TASK, Config.from_json([0, []]))),
    "evolve": Kind(_evolve),
    "measure here": Kind(lambda _, folder: _measure(LocalRunner(threads=1), folder)),
    "run here": Kind(lambda _, folder: _run(None, folder)),
    "build": Kind(_build, frozenset(PROGRAMS)),
    "compile": Kind(_compile, frozenset(PROGRAMS)),
    "measure": Kind(lambda _, folder: _measure(RpcRunner(DEVICE), folder)),
    "run": Kind(lambda _, folder: _run(DEVICE, folder)),
    "calibrate": Kind(lambda _blob, _folder: calibrate(DEVICE, CPU)),
    "peak": Kind(lambda _blob, _folder: measure_peak(CPU, DEVICE, threads=1)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The scratch folder of a call; secrets are beside it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return scratch


@pytest.mark.parametrize("name", KINDS)
def test_a_child_that_was_taken_over_gets_at_nothing(name: str, intruder: Intruder, folder: Path) -> None:
    kind = KINDS[name]
    intruder.after = kind.after
    done = intruder.run(lambda: kind.call(intruder.blob, folder))
    assert set(done) == set(kind.may)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if "fork" not in kind.may])
def test_a_child_starts_no_processes(name: str, intruder: Intruder, folder: Path) -> None:
    intruder.aim(bomb=True)
    intruder.after = KINDS[name].after
    assert "bomb" not in intruder.run(lambda: KINDS[name].call(intruder.blob, folder))


ATTACKED_PARENT = """
import json, sys
from pathlib import Path
from intruder import intruder_at, taken_over
from tunefarm_tuning.frontend.importing import import_model
intruder = intruder_at(Path(sys.argv[1]), int(sys.argv[2]))
with taken_over(intruder):
    intruder.run(lambda: import_model(intruder.blob))
print(json.dumps(intruder.reports[-1]))
"""


def attacked_parent(folder: Path, port: int, **environment: str) -> dict[str, Any]:
    """Let the intruder take over an import whose parent is a process of its own; return its report."""
    attacks = str(Path(__file__).parents[1] / "support" / "attacks")
    variables = {**os.environ, "PYTHONPATH": attacks, **environment}
    command = [sys.executable, "-c", ATTACKED_PARENT, str(folder), str(port)]
    ran = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False, timeout=STALL_SEC
    )
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


def test_without_a_sandbox_the_attacks_succeed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        report = attacked_parent(tmp_path, service.getsockname()[1], TUNEFARM_SANDBOX="off")
    # What else is refused depends on the machine: users may trace their children alone, or make no namespaces. An import's child
    # may write no byte, by its limits.
    assert set(report["done"]) >= {
        *("read the key file", "read the store beside its blob", "list the store", "change a blob"),
        *("lay open the key file", "read its parent's environment", "read its parent's command line"),
        *("change the program", "signal its parent", "fork", "connect"),
        *("leave its group", "run a program", "listen", "open a socket of this machine", "limit its parent"),
        *("choose its parent's cores", "slow its parent down", "schedule its parent", "watch the store"),
    }


@pytest.mark.skipif(not sandbox_state().is_whole, reason="needs a kernel with the whole sandbox")
def test_a_child_under_a_required_sandbox_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        report = attacked_parent(tmp_path, service.getsockname()[1], TUNEFARM_SANDBOX="required")
    assert report["done"] == {}


@pytest.mark.skipif(not sandbox_state().is_whole, reason="needs a kernel with the whole sandbox")
@pytest.mark.parametrize(
    "module",
    [
        "frontend.onnx.check_child",
        "frontend.onnx.conversion_child",
        "frontend.onnx.reference_child",
        "measure.baselines.child",
        "reference.samples_child",
        "tvm.children.build",
        "tvm.children.compile",
        "tvm.children.evolutionary",
        "tvm.children.run",
    ],
)
def test_no_library_starts_a_thread_before_the_sandbox(module: str) -> None:
    """Landlock would not hold for it."""
    with ChildProcess(f"tunefarm_tuning.{module}") as child:
        child.start()
        assert child.sandbox is not None
        assert child.sandbox.is_whole, child.sandbox
