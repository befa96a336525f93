"""`time_again`: times an existing artifact beside its untuned network and ONNX Runtime, as its compile did."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.reading import fetch_library, fetch_parts, manifest_of
from tunefarm_tuning.compiler.baselines import open_baselines
from tunefarm_tuning.compiler.model_timing import SideBySide, time_models
from tunefarm_tuning.compiler.phases.load import opened
from tunefarm_tuning.compiler.phases.untuned import untuned_model
from tunefarm_tuning.compiler.report import why_no_baseline
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError, InvalidInputError
from tunefarm_tuning.core.kept_files import folder_of_file
from tunefarm_tuning.core.latency import TimedAgain
from tunefarm_tuning.measure.baselines.runtimes import parse_baselines
from tunefarm_tuning.measure.device import RemoteDevice, device_kind, is_this_machine
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.process import ChildClosed, ChildLimits
from tunefarm_tuning.process.model_child import compiling
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.reference.samples import write_all_feeds
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision

_ROUNDS = 15


def time_again(
    artifact: Path,
    model: Model,
    *,
    device: RemoteDevice | None = None,
    precision: Precision = Precision.AS_MODEL,
    baselines: Sequence[str] = (),
    samples: Sequence[Path] = (),
    limits: CompileLimits | None = None,
    cancellation: Cancellation | None = None,
    objects: Path | None = None,
) -> TimedAgain:
    """Time an artifact in its main set of shapes, in blocks with its network as TVM compiles it untuned, and ONNX Runtime.

    Args:
        artifact: The ``.tunefarm`` file.
        model: The model that it was compiled from.
        device: Where to run it; None is this machine, where ONNX Runtime is timed beside it, unless it is a GPU.
        precision: The precision that it was compiled with.
        baselines: Further runtimes to time, as for `compile`.
        samples: Files of the user's samples; it is timed on the first of them.
        limits: Limits of the child processes, and the time for further blocks (`timing_sec`).
        cancellation: Ends it from another thread.
        objects: Where object code of kernels lies that earlier compiles made, in a folder for each model's file.

    Raises:
        InvalidInputError: If the file is not an artifact, damaged, or of another model (other-model).
        InvalidModelError: If the model cannot be compiled or run any more.
        RunFailed: If a network crashed or exceeded its time.
        DeviceLostError: If the device is away.
        CancelledError: If `cancellation` was used.
    """
    timing = _Timing(
        artifact=artifact,
        model=model,
        device=device,
        precision=precision,
        baselines=parse_baselines(baselines),
        samples=samples,
        limits=limits or CompileLimits(),
        cancellation=cancellation or Cancellation(),
        objects=folder_of_file(objects, model.sha256),
    )
    try:
        return timing.run()
    except ChildClosed as error:
        raise CancelledError("the measurement was cancelled") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timing:
    """One call of `time_again`."""

    artifact: Path
    model: Model
    device: RemoteDevice | None
    precision: Precision
    baselines: tuple[str, ...]
    samples: Sequence[Path]
    limits: CompileLimits
    cancellation: Cancellation
    objects: Path | None

    def run(self) -> TimedAgain:
        manifest = manifest_of(self.artifact)
        if manifest["model"]["sha256"] != self.model.sha256:
            raise InvalidInputError(
                f"{self.artifact.name} was compiled from another model", code="other-model"
            )
        target, threads = Target.from_json(manifest["target"]), int(manifest["threads"])
        is_here, on_gpu = is_this_machine(self.device), device_kind(target) == "cuda"
        no_baseline = why_no_baseline(wanted=True, here=is_here)
        if on_gpu:
            no_baseline = "on GPUs it is timed only at the compile"
        with ExitStack() as stack:
            folder = stack.enter_context(closing(ScratchDir())).path
            library = folder / "artifact.so"
            fetch_library(self.artifact, library)
            untuned = self._build_untuned(target, folder)
            reference = self._open_reference(stack, folder, threads)
            input_set = self._make_inputs(reference, folder, manifest.get("tolerance"))
            runner = self._open_runner(stack, folder, target, threads)
            threads = runner.connect()
            runner.use_parts(fetch_parts(self.artifact, folder), [part.to_json() for part in input_set.parts])
            beside = stack.enter_context(
                open_baselines(
                    self.baselines,
                    self.model.each[0],
                    input_set,
                    reference,
                    threads=threads,
                    limits=self.limits,
                    cancellation=self.cancellation,
                    on_gpu=on_gpu,
                    device=None if is_here else runner,
                    folder=folder,
                )
            )
            libraries = {"untuned": library}
            if _is_tuned(manifest):
                libraries = {"tuned": library, "untuned": untuned}
            networks = SideBySide(
                device=runner,
                libraries=libraries,
                reference=None if no_baseline else reference,
                others=beside.running,
                inputs=input_set.inputs,
                threads=threads,
            )
            latency = time_models(
                networks,
                limits=self.limits,
                on_round=lambda _done: None,
                rounds=_ROUNDS,
                until=time.monotonic() + self.limits.timing_sec,
            )
            latency.setdefault("tuned", latency["untuned"])
            facts = {name: each.to_json() for name, each in beside.facts.items()}
        return TimedAgain(measured_at=time.time(), latency=latency, no_baseline=no_baseline, baselines=facts)

    def _build_untuned(self, target: Target, folder: Path) -> Path:
        """Build the network untuned; the compiler is gone then, since its memory is needed."""
        session = CompileSession(self.model, target, folder, self.limits, self.precision, self.objects)
        with opened(session, self.cancellation) as compiler, compiling("preparing the model"):
            compiler.load()
            return untuned_model(compiler, folder).build()

    def _open_reference(self, stack: ExitStack, folder: Path, threads: int) -> Reference:
        reference = Reference(
            self.model.each[0],
            folder,
            threads=threads,
            memory_bytes=self.limits.memory_bytes,
            timeout_sec=self.limits.model_sec,
        )
        stack.enter_context(closing(reference))
        stack.enter_context(self.cancellation.attach(reference))
        return reference

    def _make_inputs(self, reference: Reference, folder: Path, rounding: object) -> InputSet:
        """Return the inputs, and the outputs on them; `rounding` says by what the artifact's may differ, if anything is known."""
        feeds = write_all_feeds(
            self.samples,
            self.model,
            folder,
            limits=self.limits.of_samples(),
            limit_bytes=self.limits.samples_bytes,
            cancellation=self.cancellation,
        )
        input_set = reference.make(0, feeds=feeds.fitting(0))[0]
        return input_set.with_rounding(str(rounding)) if rounding else input_set

    def _open_runner(self, stack: ExitStack, folder: Path, target: Target, threads: int) -> DeviceRun:
        kind = device_kind(target)
        limits = ChildLimits(memory_bytes=None if kind == "cuda" else self.limits.memory_bytes)
        device_run = DeviceRun(self.device, kind=kind, threads=threads, limits=limits, folder=folder)
        return stack.enter_context(opened(device_run, self.cancellation))


def _is_tuned(manifest: Mapping[str, Any]) -> bool:
    """Return whether an artifact's network is another than its untuned one, which is timed once otherwise.

    Without a tuned kernel, it may still have other algorithms. At the compile, it then took another time.
    """
    covered, taken_sec = (manifest.get(name) or {} for name in ("coverage", "latency_sec"))
    return covered.get("covered") != 0 or taken_sec.get("tuned") != taken_sec.get("untuned")
