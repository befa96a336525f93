"""`ReplayEngine`: a farm without a compiler or devices (``TUNEFARM_ENGINE=replay``), for tests and drills.

Everything around the engine is real: uploads, queues, leases, rounds, records. Only the results of measurements are
not: they come from a synthetic landscape, at once or after `Scenario.trial_sec`; or from recorded measurements, after the time that
these took (`Recording`). A "model" is a scenario: a byte that ONNX files begin with, then JSON (`Scenario.to_bytes` writes one).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tunefarm_app.engines.interface import (
    ANY_CPU,
    CompiledFile,
    CompileTerms,
    ImportedModel,
    NetworkFiles,
    OnProgress,
)
from tunefarm_app.engines.replay_measuring import replay_measuring
from tunefarm_app.engines.replay_sessions import check_session
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.engines.simulated_tasks import landscape_answer
from tunefarm_db.values import Device
from tunefarm_tuning.compiler.kernel_source import KernelSource, SourceText
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.latency import Disturbance, Latency, TimedAgain
from tunefarm_tuning.measure.calibration import CalibrationRun
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.measure.peak import Peak, peak_key
from tunefarm_tuning.measure.runner.replay import Answer
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.samples import SampleSummary, write_feeds
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import versions
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.quantisation import OutputError, Quantisation
from tunefarm_tuning.workload.runtime_part import OpenSpec
from tunefarm_tuning.workload.shapes import GivenShape, fixed_shapes
from tunefarm_tuning.workload.task import TensorSpec, TuningTask

TOOLCHAIN = "replay-1"


class ReplayEngine:
    """Implements `Engine` over scenarios.

    Args:
        answer: Returns a measurement's result, in place of the scenario's landscape.
        calibrate: Returns a calibration's result; None stands for a clean result of a millisecond.
        peak: Returns a device's peak; None if the peak is unknown.
        drafts: Whether its machine can run what it compiles.
        remote: Returns how a device is reached; sessions are then opened on it (`SessionRunner`). None opens none.
    """

    def __init__(
        self,
        answer: Answer | None = None,
        calibrate: Callable[[Device], CalibrationRun] | None = None,
        peak: Callable[[Device], Peak] | None = None,
        drafts: bool = False,
        remote: Callable[[Device], RemoteDevice] | None = None,
    ) -> None:
        self._answer, self._drafts, self._remote = answer, drafts, remote
        self._calibrate = calibrate or (lambda _: CalibrationRun(key=TOOLCHAIN, time_sec=1e-3))
        self._peak = peak or _no_peak

    @property
    def toolchain(self) -> str:
        return TOOLCHAIN

    def serve(self, owner: str | None) -> None: ...  # there are no children, and no strangers' models

    def check_workloads(self, tasks: Sequence[TuningTask], *, cancellation: Cancellation) -> None: ...

    def import_model(
        self,
        path: Path,
        shapes: Mapping[str, GivenShape],
        values: Mapping[str, Any],
        *,
        cancellation: Cancellation,
    ) -> ImportedModel:
        scenario = Scenario.read(path)
        model = Model(
            path=path,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            binding=Binding.of(fixed_shapes(shapes), values),
            inputs=(TensorSpec(name="x", shape=(1, 8), dtype="float32"),),
            outputs=(OpenSpec(name="y", shape=(1, 8), dtype="float32"),),
            operators=(("MatMul", scenario.num_tasks),),
            opset=18,
            num_params=64 * scenario.num_tasks,
        )
        return ImportedModel(model=model, tasks=self.extract_tasks(model, ANY_CPU, cancellation=cancellation))

    def check_samples(self, model: Model, path: Path, *, cancellation: Cancellation) -> SampleSummary:
        with TemporaryDirectory(prefix="tunefarm-") as folder:
            # A simulated model cannot be run, but its samples are checked like any others.
            return write_feeds(path, model, Path(folder), cancellation=cancellation)[0]

    def quantise(
        self,
        model: Model,
        samples: Sequence[Path],
        *,
        max_error: float,
        output: Path,
        cancellation: Cancellation,  # noqa: ARG002  (nothing takes long)
    ) -> Model:
        """Return the model with constant facts: a simulated one has no numbers to round."""
        shutil.copyfile(model.path, output)
        error = OutputError(name="y", mean=0.5 * max_error, largest=max_error, largest_abs=max_error)
        quantisation = Quantisation(
            products=Scenario.read(model.path).num_tasks,
            kept=0,
            between=True,
            bytes_before=4 * model.num_params,
            bytes_after=model.num_params,
            sets=len(samples),
            max_error=max_error,
            outputs=(error,),
        )
        return dataclasses.replace(model, path=output, quantisation=quantisation)

    def extract_tasks(
        self,
        model: Model,
        target: Target,
        *,
        precision: Precision = Precision.AS_MODEL,  # noqa: ARG002  (there are no weights)
        cancellation: Cancellation,  # noqa: ARG002  (nothing takes long)
    ) -> tuple[TuningTask, ...]:
        return Scenario.read(model.path).tuning_tasks(target)

    def measuring(
        self, device: Device, *, cancellation: Cancellation
    ) -> AbstractContextManager[MeasureOption]:
        remote = None if self._remote is None else self._remote(device)
        return replay_measuring(device, self._answer or landscape_answer, remote, cancellation=cancellation)

    def calibrate(self, device: Device, *, cancellation: Cancellation) -> CalibrationRun:
        if self._remote is not None:
            check_session(self._remote(device), cancellation)
        return self._calibrate(device)

    def measure_peak(self, device: Device, *, cancellation: Cancellation) -> Peak:  # noqa: ARG002
        return self._peak(device)

    def compile(
        self,
        model: Model,
        target: Target,
        history: History,
        terms: CompileTerms,
        *,
        device: Device | None,
        output: Path,
        cancellation: Cancellation,
        on_progress: OnProgress,
    ) -> CompiledFile:
        scenario = Scenario.read(model.path)
        began = time.monotonic()
        while not cancellation.cancelled and (spent_sec := time.monotonic() - began) < scenario.compile_sec:
            on_progress("simulate", spent_sec / scenario.compile_sec)
            time.sleep(0.02)
        manifest = {
            "name": output.stem,
            "target": target.to_json(),
            "precision": terms.precision.value,
            "versions": versions(),
            "records": [{"workload_key": record.workload_key} for record in history.records],
            "simulated": True,
        }
        report = {
            "simulated": True,
            "device": device.name if device is not None else "",
            "coverage": {"tasks": scenario.num_tasks, "covered": len(history.records)},
            "samples": len(terms.samples),
            **({"baselines": list(terms.baselines)} if terms.baselines else {}),
            "other_shapes": None if terms.other_shapes else {"entry": None, "reason": "not asked for"},
        }
        output.write_text(json.dumps({"manifest": manifest, "report": report}), encoding="utf-8")
        inputs = output.with_suffix(".npz") if device is None else None
        if inputs is not None:
            inputs.write_bytes(b"simulated inputs")
        return CompiledFile(path=output, manifest=manifest, report=report, inputs=inputs)

    def runs_here(self, target: Target) -> bool:  # noqa: ARG002
        return self._drafts

    def time_artifact(self, artifact: Path, model: Model, **_: Any) -> TimedAgain:  # noqa: ARG002
        """Return constant times: a simulated artifact is twice as fast as untuned."""
        sec, quiet = 0.001 * Scenario.read(model.path).num_tasks, Disturbance(blocks=5, others_cores=0.0)
        times = {"tuned": sec, "untuned": 2 * sec, "onnxruntime": 1.5 * sec}
        latency = {n: Latency(samples_sec=(t,) * 5, threads=1, disturbance=quiet) for n, t in times.items()}
        return TimedAgain(measured_at=time.time(), latency=latency)

    def time_network(self, files: NetworkFiles, **_: Any) -> Latency:
        """Return a constant time: each tuned kernel saves a part of what the untuned network takes."""
        coverage = json.loads(files.artifact.read_text(encoding="utf-8"))["report"]["coverage"]
        sec = 0.001 * (2 * coverage["tasks"] - min(coverage["covered"], coverage["tasks"]))
        quiet = Disturbance(blocks=5, others_cores=0.0)
        return Latency(samples_sec=(sec,) * 5, threads=1, disturbance=quiet)

    def kernel_source(self, task: TuningTask, record: TuningRecord, **_: Any) -> KernelSource:
        text = f"# a simulation has no kernels: {task.workload.name}, {record.config.key}\n"
        size = len(text.encode())
        texts = tuple(
            SourceText(kind=kind, text=text, size_bytes=size) for kind in ("schedule", "llvm", "asm")
        )
        return KernelSource(toolchain=TOOLCHAIN, texts=texts)

    def close(self) -> None:
        """Do nothing: a replay engine has no processes."""


def _no_peak(device: Device) -> Peak:
    key = peak_key(Target.from_json(device.target), device.device_model)
    return Peak(key=key, threads=1, measured_at=time.time(), missing="a simulated device has none")
