"""The whole way for Arm devices: joined, calibrated, tuned on, compiled for; the artifact runs there by its own loader.

The devices are emulated (`emulated_arm`), so this is about what is right, never about what is fast.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import bent_server
import numpy as np
import onnxruntime
import psutil
import pytest
from device_processes import compile_library
from emulated_arm import ARM_COMPILER, CORTEX_A72, MAX, NEOVERSE_N1, ArmCpu, ArmMachine, emulated_machine
from onnx_models import GraphBuilder
from quantised_networks import conv
from waiting import wait_until

from tunefarm.client import Client, JobHandle

PATIENCE_SEC = 600.0
TARGETS: dict[ArmCpu, dict[str, object]] = {
    CORTEX_A72: {"mcpu": "cortex-a72", "mattr": ["-aes"]},
    NEOVERSE_N1: {"mcpu": "neoverse-n1"},
    MAX: {"mcpu": "generic", "mattr": ["+bf16", "+dotprod", "+fullfp16", "+i8mm"]},
}
"""What the devices register as."""
RUN = """
import sys
name = sys.argv[1]
sys.path.insert(0, f"{name}.tunefarm")
import numpy as np
from loader import load
model = load(f"{name}.tunefarm")
np.savez(f"{name}.outputs.npz", **model(**np.load(f"{name}.npz")))
"""


@contextmanager
def process(*command: object, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process for the time of the block; its last words go to the test's output."""
    with log.open("w") as errors:
        child = subprocess.Popen(
            [*map(str, command)], env=env, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=log.parent
        )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=PATIENCE_SEC)
        print(f"--- {log.name}\n{log.read_text()[-4000:]}")


@contextmanager
def serving(folder: Path, *settings: str) -> Iterator[Client]:
    """A farm whose workers run here, for the time of the block, by its client."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TUNEFARM_")}
    command = (sys.executable, "-m", "tunefarm", "serve", "--port", "0", "--json", "--home", folder / "home")
    # Measuring the peak would take a minute on each emulated device.
    options = [part for setting in ("PEAK_EVERY_SEC=0", *settings) for part in ("--setting", setting)]
    with process(
        *command,
        *options,
        env={**plain, "TUNEFARM_TIMING_SEC": "0", "TUNEFARM_WARM_CHILDREN": "0"},
        log=folder / "serve.log",
    ) as farm:
        assert farm.stdout is not None
        facts = json.loads(farm.stdout.readline())
        with Client(facts["url"], Path(facts["key_file"]).read_text().strip()) as client:
            client.key_file = facts["key_file"]  # type: ignore[attr-defined]
            yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    # How long an emulated device takes depends on what else runs here.
    with serving(tmp_path_factory.mktemp("farm"), "CALIBRATION_DRIFT=1000") as client:
        yield client


@contextmanager
def lent(
    client: Client,
    machine: ArmMachine,
    folder: Path,
    *,
    agent: Sequence[str] = ("tunefarm", "device", "join"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Callable[[], str]]:
    """Lend the machine to the farm, without a word about its target, for the time of the block; yield how it stands there."""
    name = machine.cpu.name
    options = (
        "--name",
        name,
        "--device-key",
        name,
        "--url",
        client.url,
        "--work-dir",
        folder / f"{name}.work",
    )
    key = ("--api-key-file", client.key_file)  # type: ignore[attr-defined]
    environment = {**machine.environment, **(environment or {})}

    def state() -> str:
        return next((f"{d.state}: {d.reason}" for d in client.devices.list() if d.name == name), "")

    log = folder / f"{name}.log"
    with process(machine.python, "-m", *agent, *options, *key, env=environment, log=log):
        yield state


@contextmanager
def joined(client: Client, machine: ArmMachine, folder: Path, **how: Any) -> Iterator[Callable[[], str]]:
    """Lend the machine, and wait until it is online."""
    with lent(client, machine, folder, **how) as state:
        wait_online(state)
        yield state


def wait_online(state: Callable[[], str]) -> None:
    wait_until(lambda: state().startswith("online"), state, within_sec=PATIENCE_SEC, every_sec=1.0)


def network(path: Path) -> Path:
    """A convolution, a pooling and a product: small, since QEMU is slow."""
    graph = GraphBuilder()
    x = graph.node(
        "Relu", graph.node("Conv", graph.input("x", [1, 3, 12, 12]), graph.weight(8, 3, 3, 3), pads=[1] * 4)
    )
    x = graph.node("Flatten", graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    graph.output(graph.linear(x, 8 * 6 * 6, 10), [1, 10])
    path.write_bytes(graph.model().SerializeToString())
    return path


def integers(path: Path) -> Path:
    """A quantised convolution, for the instruction for bytes that each CPU has."""
    path.write_bytes(conv([1, 16, 10, 10], 32, 3, np.uint8, pads=[1] * 4).SerializeToString())
    return path


def finished(handle: JobHandle, trials: int, folder: Path) -> dict[str, Any]:
    """Wait for a job, download its artifact into a folder, and return its report."""
    job = handle.wait(timeout_sec=PATIENCE_SEC)
    assert (job.state, job.trials) == ("succeeded", trials)
    report: dict[str, Any] = handle.report()
    assert report["checks"]["ok"], "compared with ONNX Runtime on the device"
    assert report["artifact"]["machine"] == "aarch64"
    folder.mkdir(exist_ok=True)
    handle.download(folder, name="net.tunefarm")
    return report


def assert_runs(machine: ArmMachine, folder: Path, model: Path, *, tolerance: float) -> None:
    """Run a folder's artifact by its own loader on the machine, and compare its output with ONNX Runtime's here."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (x,) = session.get_inputs()
    values = np.random.default_rng(0).uniform(-1.4, 1.4, x.shape).astype(np.float32)
    np.savez(folder / "net.npz", x=values)
    (folder / "run.py").write_text(RUN)
    machine.run(folder / "run.py", "net", cwd=folder)
    (expected,) = session.run(None, {"x": values})
    with np.load(folder / "net.outputs.npz") as outputs:
        np.testing.assert_allclose(outputs[outputs.files[0]], expected, atol=tolerance)


@pytest.mark.timeout(1800)  # some 400 processor seconds, beside other tests
def test_arm_devices_are_tuned_for(client: Client, tmp_path: Path) -> None:
    """The whole way at the least cost: all devices are there at once, and the network is small."""
    machines = {cpu.name: emulated_machine(cpu) for cpu in TARGETS}
    model = integers(tmp_path / "net.onnx")
    with ExitStack() as stack:
        states = [stack.enter_context(lent(client, machine, tmp_path)) for machine in machines.values()]
        for state in states:
            wait_online(state)
        devices = {device.device_key: device for device in client.devices.list()}
        for cpu, target in TARGETS.items():
            wanted = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", **target}
            assert {**devices[cpu.name].raw["target"], "num-cores": 0} == {**wanted, "num-cores": 0}
            assert f"arm-0x41-{cpu.part}-" in devices[cpu.name].device_model
        handles = {
            name: client.tune(model, trials=8, device_key=name, other_shapes=False) for name in machines
        }
        for name, handle in handles.items():
            finished(handle, 8, tmp_path / name)
            # A step of the last rounding is 0.02.
            assert_runs(machines[name], tmp_path / name, model, tolerance=0.021)


@pytest.mark.exhaustive
def test_a_board_without_tvms_compiler_is_tuned_for(client: Client, tmp_path: Path) -> None:
    machine = emulated_machine(CORTEX_A72).copy_to(tmp_path / "trimmed")
    said = machine.run("-m", "tunefarm", "device", "trim")
    assert "This machine is llvm -mattr=-aes -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu" in said
    assert not list((tmp_path / "trimmed" / "site-packages" / "tvm").rglob("libtvm_compiler.so"))
    model = network(tmp_path / "net.onnx")
    with joined(client, machine, tmp_path):
        handle = client.tune(model, trials=24, device_key=machine.cpu.name, other_shapes=False)
        finished(handle, 24, tmp_path)
    assert_runs(machine, tmp_path, model, tolerance=1e-4)


@pytest.mark.exhaustive
def test_a_board_that_computes_in_float16_is_tuned_for_in_it(client: Client, tmp_path: Path) -> None:
    machine, model = emulated_machine(NEOVERSE_N1), network(tmp_path / "net.onnx")
    with joined(client, machine, tmp_path):
        handle = client.tune(
            model, trials=8, device_key=machine.cpu.name, precision="float16", other_shapes=False
        )
        report = finished(handle, 8, tmp_path)
    assert report["precision"]["weights"]["stored"] > 0
    # The outputs' root mean square is 6, of which float16 may cost 1 %.
    assert_runs(machine, tmp_path, model, tolerance=0.06)


@pytest.mark.exhaustive
def test_x86_and_arm_are_tuned_for_together(client: Client, tmp_path: Path) -> None:
    """One sweep: an artifact of each, and one report."""
    machine = emulated_machine(MAX)
    with joined(client, machine, tmp_path):
        (here,) = {
            device.device_key for device in client.devices.list() if "mtriple" not in device.raw["target"]
        }
        model = client.models.upload(network(tmp_path / "net.onnx"))
        client.models.wait(model.id, timeout_sec=PATIENCE_SEC)
        pools = [here, machine.cpu.name]
        sweep = client.sweeps.create([model.id], device_keys=pools, trials=16, other_shapes=False)
        sweep = client.sweeps.wait(sweep.id, timeout_sec=PATIENCE_SEC)
        assert {cell.device_key: (cell.state, cell.trials) for cell in sweep.cells} == dict.fromkeys(
            pools, ("succeeded", 8)
        )
        machines = {}
        for cell in sweep.cells:
            assert cell.job_id is not None
            report = client.jobs.report(cell.job_id)
            assert report["checks"]["ok"], "compared with ONNX Runtime on the device"
            machines[cell.device_key] = report["artifact"]["machine"]
        assert machines == {here: "x86_64", machine.cpu.name: "aarch64"}
        text = json.dumps(client.sweeps.report(sweep.id), default=str)
        assert all(pool in text for pool in pools)


@pytest.mark.exhaustive
def test_a_job_goes_on_when_the_agent_was_killed_and_started_again(client: Client, tmp_path: Path) -> None:
    machine = emulated_machine(CORTEX_A72)
    model = network(tmp_path / "net.onnx")
    with joined(client, machine, tmp_path) as state:
        handle = client.tune(model, trials=64, device_key=machine.cpu.name, other_shapes=False)
        wait_until(
            lambda: client.jobs.get(handle.id).trials > 0, state, within_sec=PATIENCE_SEC, every_sec=0.2
        )
        (agent,) = [child for child in psutil.Process().children() if str(machine.python) in child.cmdline()]
        agent.kill()
        wait_until(lambda: not state().startswith("online"), state, within_sec=PATIENCE_SEC, every_sec=1.0)
        assert client.jobs.get(handle.id).state == "tuning"
    with joined(client, machine, tmp_path):
        job = handle.wait(timeout_sec=PATIENCE_SEC)
    assert (job.state, job.trials) == ("succeeded", 64)
    assert handle.report()["checks"]["ok"], "compared with ONNX Runtime on the device"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("bent", "reason"), [("wrong", "computed a wrong result"), ("slow", "its clock drifts")]
)
def test_a_board_that_computes_wrongly_or_drifts_is_locked_out_and_let_in_again(
    bent: str, reason: str, tmp_path: Path
) -> None:
    machine = emulated_machine(CORTEX_A72)
    shim = compile_library(bent_server.SHIM_SOURCE, tmp_path / "shim.so", ARM_COMPILER)
    bend = tmp_path / "bend"
    bend.write_text("straight")
    path = [machine.environment["PYTHONPATH"], str(Path(bent_server.__file__).parent)]
    environment = {"BENT_FILE": str(bend), "BENT_SHIM": str(shim), "PYTHONPATH": os.pathsep.join(path)}
    # The shim stands in for a kernel on one core.
    agent = ("bent_agent", "--target", "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu -num-cores=1")
    with (
        serving(tmp_path, "CALIBRATE_EVERY_SEC=5", "CALIBRATE_RETRY_SEC=1") as client,
        joined(client, machine, tmp_path, agent=agent, environment=environment) as state,
    ):

        def is_locked_out() -> bool:
            return state().startswith("quarantined") and reason in state()

        bend.write_text(bent)
        wait_until(is_locked_out, state, within_sec=PATIENCE_SEC, every_sec=1.0)
        bend.write_text("straight")
        wait_online(state)


def test_without_debians_tools_the_summary_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):  # once tried, and once told by the mark of that
        with pytest.raises(pytest.skip.Exception, match="no emulated Arm machine: there is no apt-get"):
            emulated_machine(MAX)
    assert not list(tmp_path.rglob("arm.part"))
