"""`TvmEngine`: the engine of a worker; it runs TVM in child processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunefarm_app.engines.interface import (
    ANY_CPU,
    CompiledFile,
    CompileTerms,
    ImportedModel,
    NetworkFiles,
    OnProgress,
)
from tunefarm_app.engines.kept_children import KeptChildren
from tunefarm_app.engines.remote_device import remote_device
from tunefarm_app.identity.tickets import GatewayWay
from tunefarm_app.settings import Settings
from tunefarm_db.values import Device
from tunefarm_tuning.compiler.compile import compile as compile_model
from tunefarm_tuning.compiler.kernel_source import KernelSource, kernel_source
from tunefarm_tuning.compiler.network_timing import time_network
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.compiler.time_again import time_again
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError
from tunefarm_tuning.core.latency import Latency, TimedAgain
from tunefarm_tuning.frontend.extraction import check_workloads, extract_tasks
from tunefarm_tuning.frontend.importing import import_with_tasks
from tunefarm_tuning.frontend.quantising import quantise_model
from tunefarm_tuning.measure.calibration import CalibrationRun, calibrate
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.measure.peak import Peak, measure_peak
from tunefarm_tuning.process import ChildClosed, ChildLimits, in_background
from tunefarm_tuning.process.model_child import ImportLimits
from tunefarm_tuning.process.warm import WARM
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.samples import SampleSummary, check_samples
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.parse import is_for_this_cpu
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import check_can_build, toolchain_key
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.shapes import GivenShape
from tunefarm_tuning.workload.task import TuningTask

_DRAFT_BLOCKS = 3
"""Samples of a draft's latency: other work disturbs them in any case."""
_QUICK_TIMING_SEC, _QUICK_BLOCKS = 5.0, 10
_NETWORK_TIMEOUT_SEC = 60.0


class TvmEngine:
    """Implements `Engine`.

    Compilers and measuring processes are kept from step to step (`KeptChildren`). From a device's first calibration on, the next child
    that reads a network is started before it is needed (`Settings.warm_children`).

    Args:
        settings: The process's settings.
        gateway: How devices are reached, which are connected with the farm's gateway; None if there is none.
        reach: Returns a device's address.
    """

    def __init__(
        self,
        settings: Settings,
        gateway: GatewayWay | None = None,
        *,
        reach: Callable[[Device, GatewayWay | None], RemoteDevice] = remote_device,
    ) -> None:
        self._reach = reach
        self._settings = settings
        self._gateway = gateway
        self._kept = KeptChildren(settings.build_workers, settings.engine_idle_sec)

    @property
    def toolchain(self) -> str:
        return toolchain_key()

    def serve(self, owner: str | None) -> None:
        self._kept.serve(owner)

    def import_model(
        self,
        path: Path,
        shapes: Mapping[str, GivenShape],
        values: Mapping[str, Any],
        *,
        cancellation: Cancellation,
    ) -> ImportedModel:
        WARM.keep(self._settings.warm_children)
        limits = self._import_limits()
        model, tasks = import_with_tasks(
            path, shapes=shapes, values=values, limits=limits, cancellation=cancellation
        )
        if model.specialisations:  # the import extracts no tasks of a model of several shapes
            tasks = self.extract_tasks(model, ANY_CPU, cancellation=cancellation)
        return ImportedModel(model=model, tasks=tasks)

    def check_samples(self, model: Model, path: Path, *, cancellation: Cancellation) -> SampleSummary:
        return check_samples(
            path,
            model,
            limits=self._import_limits(),
            limit_bytes=self._settings.max_samples_bytes,
            cancellation=cancellation,
        )

    def _import_limits(self) -> ImportLimits:
        timeout_sec = self._settings.import_timeout_sec
        return ImportLimits(
            memory_bytes=self._settings.import_memory_bytes,
            timeout_sec=timeout_sec,
            cpu_sec=int(2 * timeout_sec) + 1,
        )

    def quantise(
        self,
        model: Model,
        samples: Sequence[Path],
        *,
        max_error: float,
        output: Path,
        cancellation: Cancellation,
    ) -> Model:
        return quantise_model(
            model,
            samples,
            output,
            max_error=max_error,
            limits=replace(
                self._import_limits(),
                timeout_sec=self._settings.compile_time_limit_sec,
                cpu_sec=int(2 * self._settings.compile_time_limit_sec) + 1,
            ),
            limit_bytes=self._settings.max_samples_bytes,
            cancellation=cancellation,
        )

    def extract_tasks(
        self,
        model: Model,
        target: Target,
        *,
        precision: Precision = Precision.AS_MODEL,
        cancellation: Cancellation,
    ) -> tuple[TuningTask, ...]:
        check_can_build(target)  # a job's first step: no other step of it is queued yet
        limits = ChildLimits(memory_bytes=self._settings.import_memory_bytes)
        return extract_tasks(model, target, precision=precision, limits=limits, cancellation=cancellation)

    def check_workloads(self, tasks: Sequence[TuningTask], *, cancellation: Cancellation) -> None:
        check_workloads(tasks, limits=self._import_limits(), cancellation=cancellation)

    @contextmanager
    def measuring(self, device: Device, *, cancellation: Cancellation) -> Iterator[MeasureOption]:
        builder, runner = self._kept.take(self._remote(device))
        try:
            with cancellation.attach(builder), cancellation.attach(runner):
                yield MeasureOption(builder=builder, runner=runner)
        finally:
            if cancellation.cancelled:
                self._kept.close()  # the children were closed during the work: start new ones next time
            else:
                self._kept.rest()

    def calibrate(self, device: Device, *, cancellation: Cancellation) -> CalibrationRun:
        return calibrate(self._remote(device), Target.from_json(device.target), cancellation=cancellation)

    def measure_peak(self, device: Device, *, cancellation: Cancellation) -> Peak:
        memory_bytes = device.info.get("memory_bytes")
        peak = measure_peak(
            Target.from_json(device.target),
            self._remote(device),
            memory_bytes=memory_bytes if isinstance(memory_bytes, int) else None,
            cancellation=cancellation,
        )
        WARM.keep(self._settings.warm_children)  # for the device's first job
        return peak

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
        is_draft = device is None
        if is_draft:
            history = _for_this_machine(history)
        else:
            self._kept.close()  # the compiler needs their memory
        inputs = output.with_suffix(".npz") if is_draft and not model.parts else None
        with in_background() if is_draft else nullcontext():
            artifact = compile_model(
                model,
                target,
                history=history,
                precision=terms.precision,
                max_error=terms.max_error,
                baseline=not is_draft,
                baselines=terms.baselines,
                other_shapes=terms.other_shapes,
                samples=terms.samples,
                goal_sec=terms.goal_sec,
                output=output,
                device=None if device is None else self._remote(device),
                on_progress=on_progress,
                cancellation=cancellation,
                limits=self._compile_limits(is_quick=terms.quick, is_draft=is_draft),
                keep_inputs=inputs,
            )
        if not is_draft:
            WARM.keep(self._settings.warm_children)  # for the next job
        return CompiledFile(
            path=artifact.path, manifest=artifact.manifest, report=artifact.report, inputs=inputs
        )

    def _compile_limits(self, *, is_quick: bool, is_draft: bool) -> CompileLimits:
        longest_sec = self._settings.compile_time_limit_sec
        limits = CompileLimits(
            timing_sec=self._settings.timing_sec,
            whole_sec=longest_sec,
            samples_bytes=self._settings.max_samples_bytes,
        )
        if is_quick:
            limits = replace(
                limits,
                ablation_sec=0.0,
                timing_sec=min(_QUICK_TIMING_SEC, self._settings.timing_sec),
                timing_blocks=_QUICK_BLOCKS,
            )
        if is_draft:
            # On a busy machine a draft takes any time at all, up to the step's own limit.
            limits = replace(
                limits,
                load_sec=longest_sec,
                kernel_sec=longest_sec,
                model_sec=longest_sec,
                kernel_ratio=math.inf,  # times tell nothing beside a search
                model_ratio=math.inf,
                timing_sec=0.0,
                timing_blocks=_DRAFT_BLOCKS,
            )
        return limits

    def time_network(
        self, files: NetworkFiles, *, device: Device, sampling_sec: float, cancellation: Cancellation
    ) -> Latency:
        builder, runner = self._kept.take(self._remote(device))
        try:
            with cancellation.attach(runner):
                return time_network(
                    runner,
                    files.artifact,
                    files.inputs,
                    builder.folder,
                    sampling_sec=sampling_sec,
                    timeout_sec=_NETWORK_TIMEOUT_SEC,
                )
        except ChildClosed as error:
            raise CancelledError("the timing was cancelled") from error
        finally:
            if cancellation.cancelled:
                self._kept.close()
            else:
                self._kept.rest()

    def runs_here(self, target: Target) -> bool:
        return is_for_this_cpu(target)

    def time_artifact(
        self,
        artifact: Path,
        model: Model,
        *,
        precision: Precision,
        baselines: Sequence[str],
        samples: Sequence[Path],
        device: Device,
        cancellation: Cancellation,
    ) -> TimedAgain:
        self._kept.close()  # they would disturb it
        return time_again(
            artifact,
            model,
            device=self._remote(device),
            precision=precision,
            baselines=baselines,
            samples=samples,
            limits=CompileLimits(
                timing_sec=self._settings.timing_sec, samples_bytes=self._settings.max_samples_bytes
            ),
            cancellation=cancellation,
            objects=self._settings.objects_dir,
        )

    def kernel_source(
        self, task: TuningTask, record: TuningRecord, *, cancellation: Cancellation
    ) -> KernelSource:
        limits = ChildLimits(memory_bytes=self._settings.import_memory_bytes)
        return kernel_source(task, record, limits=limits, cancellation=cancellation)

    def close(self) -> None:
        WARM.keep(0)
        self._kept.close()

    def _remote(self, device: Device) -> RemoteDevice:
        return self._reach(device, self._gateway)


def _for_this_machine(history: History) -> History:
    """Return the history as if this machine had measured it: a compile looks for records of the machine that checks it."""
    device_model = host_device_model()
    return History(
        (replace(record, device_model=device_model) for record in history.records), history.findings
    )
