"""Prove what needs a GPU: one script, for any machine with an NVIDIA GPU and nvcc.

    python -m benchmarks.gpu.check
    make gpu-check

Takes some minutes, needs no network, leaves nothing behind but what ``--folder`` asks for. Exit codes: 0 all of it is proved, 1 something is not,
4 there is no GPU here, and nothing was proved.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from benchmarks.gpu.farm_job import GpuFarm
from benchmarks.gpu.farm_proof import tuned_by
from benchmarks.gpu.machine import Machine, look, readings
from benchmarks.gpu.networks import to_half
from benchmarks.gpu.parts import child, in_a_child, inputs_and_expected
from benchmarks.gpu.proofs import NO_GPU, Check, NotProvedError, holds, prove, right
from benchmarks.models.networks.encoder import build_encoder
from benchmarks.models.networks.graph import write_network

from tunefarm_tuning import Budget, History, extract_tasks, import_model, tune
from tunefarm_tuning import compile as compile_model
from tunefarm_tuning.artifact.container import LIBRARY, MANIFEST, ArtifactError, read_manifest
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target

_TRIALS = 24
_BUILD_SEC = 300.0
_SPEC = {"name": "x", "shape": [256], "dtype": "float32", "constant": False}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="keeps networks, artifacts and the farm with its logs here"
    )
    keep: Path | None = parser.parse_args(arguments).folder
    machine = look()
    if not machine.gpu:
        for lack in machine.lacks:
            tell(lack)
        tell("no GPU here: nothing proved")
        return NO_GPU
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        return prove(GpuChecks(machine, keep).all(), tell)
    with tempfile.TemporaryDirectory(prefix="tunefarm-gpu-") as folder:
        return prove(GpuChecks(machine, Path(folder)).all(), tell)


class GpuChecks:
    """The checks; later ones use what earlier ones made.

    Args:
        machine: Has a GPU.
        folder: For all files.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine = machine
        self._folder = folder
        self._target: Target = parse_target(machine.target)
        self._networks = {
            f"{name}-{dtype}": write_network(
                model if dtype == "float32" else to_half(model), folder / f"{name}-{dtype}.onnx"
            )
            for name, model in small_networks().items()
            for dtype in ("float32", "float16")
        }
        self._artifact = folder / "tuned.tunefarm"

    def all(self) -> list[Check]:
        return [
            ("the driver tells clocks, temperature and power", self.tells),
            *(
                (f"{name}: untuned, it gives right answers", partial(self.untuned, name))
                for name in self._networks
            ),
            ("candidates are built and measured", self.tunes),
            ("an artifact with tuned kernels runs in a fresh process, and is right", self.runs),
            ("an artifact of another architecture is refused, and both are named", self.refuses),
            ("after an illegal memory access the next kernel runs", self.survives),
            ("a farm tunes a network through the GPU's agent, and its artifact is right", self.farmed),
        ]

    def tells(self) -> str:
        seen = readings()
        missing = [
            name
            for name in ("clock_mhz", "memory_clock_mhz", "temperature_celsius", "power_watts")
            if not seen.get(name)
        ]
        holds(not missing, f"nothing is told of {', '.join(missing)}")
        return f"{self._machine.gpu['name']}: {', '.join(f'{name} {value}' for name, value in seen.items())}"

    def untuned(self, name: str) -> str:
        network, library = self._networks[name], self._folder / f"{name}.so"
        with closing(
            CompileSession(import_model(network), self._target, self._folder, CompileLimits())
        ) as session:
            session.build_model(library, {})
        inputs, expected = inputs_and_expected(network)
        measured = in_a_child("library", {"path": str(library), "kind": "cuda"}, inputs, expected)
        return right(measured)

    def tunes(self) -> str:
        model = import_model(self._networks["encoder-float32"])
        done = tune(extract_tasks(model, self._target), budget=Budget(trials=_TRIALS))
        good = done.trials - done.failures
        holds(good > 0, f"of {done.trials} candidates none was measured")
        compiled = compile_model(model, self._target, output=self._artifact, history=History(done.records))
        coverage, latency = compiled.report["coverage"], compiled.report["latency"]
        return (
            f"{good} of {done.trials}; {coverage['covered']} of {coverage['tasks']} kernels are tuned, the network takes "
            f"{1e6 * latency['tuned']['median_sec']:.0f} µs, {1e6 * latency['untuned']['median_sec']:.0f} untuned"
        )

    def runs(self) -> str:
        inputs, expected = inputs_and_expected(self._networks["encoder-float32"])
        return right(in_a_child("artifact", {"path": str(self._artifact)}, inputs, expected))

    def refuses(self) -> str:
        here = str(self._target.get("arch"))
        there = "sm_80" if here != "sm_80" else "sm_90"
        other = with_architecture(self._artifact, self._folder / "other.tunefarm", there)
        try:
            load(other)
        except ArtifactError as error:
            holds(error.code == "wrong-architecture", f"it is refused as {error.code}: {error.message}")
            holds(here in error.message and there in error.message, f"it says: {error.message}")
            return error.message
        raise NotProvedError(f"an artifact for {there} was loaded on {here}")

    def survives(self) -> str:
        bad, good = self._folder / "bad.so", self._folder / "good.so"
        with closing(child()) as building:
            params = {"path": str(bad), "target": self._machine.target}
            building.call("build_bad", params, timeout_sec=_BUILD_SEC)
        name = "encoder-float32"
        with closing(
            CompileSession(import_model(self._networks[name]), self._target, self._folder, CompileLimits())
        ) as session:
            task = session.load().tasks[0]
            session.build_kernel(task.name, good, None)
        with closing(
            DeviceRun(
                None, kind="cuda", threads=1, limits=ChildLimits(memory_bytes=None), folder=self._folder
            )
        ) as device:
            message = _crash(partial(_run, device, bad, [_SPEC, _SPEC]))
            _run(device, good, [spec.to_json() for spec in task.args])
        return f"the first said: {message[:200]}"

    def farmed(self) -> str:
        folder = self._folder / "from-the-farm"
        with GpuFarm(self._folder / "farm", tell, target="cuda") as farm:
            return tuned_by(farm, self._networks["encoder-float32"], folder)


def small_networks() -> dict[str, onnx.ModelProto]:
    """Return a convolutional network and an encoder that build in seconds."""
    from tiny_convnet import build_tiny_convnet  # an example: its folder is on the path by now

    return {
        "convnet": build_tiny_convnet(),
        "encoder": build_encoder(layers=1, hidden=128, heads=2, feed_forward=256, sequence=32),
    }


def with_architecture(artifact: Path, output: Path, arch: str) -> Path:
    """Write an artifact anew that says that it is for GPUs of another architecture."""
    manifest = read_manifest(artifact)
    manifest["target"]["arch"] = arch
    with zipfile.ZipFile(artifact) as source, zipfile.ZipFile(output, "w") as copy:
        copy.writestr(MANIFEST, json.dumps(manifest))
        copy.writestr(LIBRARY, source.read(LIBRARY))
    return output


def _run(device: DeviceRun, library: Path, args: list[dict[str, Any]]) -> None:
    params = {"path": str(library), "args": args, "seed": 0, "kind": "normal"}
    device.call("run_untuned", params, timeout_sec=_BUILD_SEC)


def _crash(run: Callable[[], None]) -> str:
    try:
        run()
    except RunFailed as error:
        return error.message
    raise NotProvedError("the kernel that reads outside of its argument was not noticed")


def tell(message: str) -> None:
    print(message, flush=True)


if __name__ == "__main__":
    sys.exit(main())
