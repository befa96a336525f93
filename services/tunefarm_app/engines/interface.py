"""The interface between the use cases and the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tunefarm_db.values import Device
from tunefarm_tuning.compiler.kernel_source import KernelSource
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.latency import Latency, TimedAgain
from tunefarm_tuning.measure.calibration import CalibrationRun
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.samples import SampleSummary
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.shapes import GivenShape
from tunefarm_tuning.workload.task import TuningTask

OnProgress = Callable[[str, float], None]
"""Called with a phase of the compiler and its progress (0.0 to 1.0)."""

ANY_CPU = Target(kind="llvm")
"""Workloads are the same for all CPUs: this target represents them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model that can be used, and its tuning tasks for `ANY_CPU`."""

    model: Model
    tasks: tuple[TuningTask, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTerms:
    """What is asked of a compile, beside the network, the target and the records. See `tunefarm_tuning.compiler.compile`.

    Attributes:
        samples: The user's files of samples.
        quick: Other algorithms are chosen as earlier compiles, or the kernels' own times, judged them, and the network is timed for
            a few seconds.
    """

    precision: Precision = Precision.AS_MODEL
    max_error: float | None = None
    other_shapes: bool = True
    baselines: Sequence[str] = ()
    samples: Sequence[Path] = ()
    goal_sec: float | None = None
    quick: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFile:
    """A packed artifact on the worker's disk, with its manifest and report.

    Attributes:
        inputs: The file of inputs that the network can be timed on; None if it was not asked for, or ONNX Runtime runs parts of it.
    """

    path: Path
    manifest: Mapping[str, Any]
    report: Mapping[str, Any]
    inputs: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFiles:
    """A network that can be timed: its artifact, and the file of inputs that its compile compared it on."""

    artifact: Path
    inputs: Path


class Engine(Protocol):
    """Imports, measures and compiles for a worker's steps.

    Concurrency: one step at a time; a `Cancellation` may be cancelled from another thread, and the call at hand
        then ends within seconds, with any exception.
    Failure: a wrong model, target or config is an `InvalidInputError` with a code of its own; a device that
        went away is a `DeviceLostError`; what may go well next time is a `TransientError`.
    Ownership: compilers and measuring processes are kept between steps; `close` ends them.
    """

    @property
    def toolchain(self) -> str:
        """The versions that make workloads and kernels; records are valid for one toolchain only."""
        ...

    def serve(self, owner: str | None) -> None:
        """Take note of whose job comes next: children that other owners' jobs may have taken over do not work for it."""
        ...

    def import_model(
        self,
        path: Path,
        shapes: Mapping[str, GivenShape],
        values: Mapping[str, Any],
        *,
        cancellation: Cancellation,
    ) -> ImportedModel:
        """Read a model's file, check it, and extract its tasks for `ANY_CPU`, as `extract_tasks` does."""
        ...

    def check_samples(self, model: Model, path: Path, *, cancellation: Cancellation) -> SampleSummary:
        """Check that a file of samples fits a model, and that the model runs on them."""
        ...

    def quantise(
        self,
        model: Model,
        samples: Sequence[Path],
        *,
        max_error: float,
        output: Path,
        cancellation: Cancellation,
    ) -> Model:
        """Quantise a model on samples, and write it; the returned one says how (`Model.quantisation`)."""
        ...

    def extract_tasks(
        self,
        model: Model,
        target: Target,
        *,
        precision: Precision = Precision.AS_MODEL,
        cancellation: Cancellation,
    ) -> tuple[TuningTask, ...]: ...

    def check_workloads(self, tasks: Sequence[TuningTask], *, cancellation: Cancellation) -> None:
        """Check that each task's computation is the one that its key and facts are of.

        A model may have taken over the child that told them, and others' tasks are found by the same keys.

        Raises:
            InvalidModelError: ``other-workload``, if one is not.
        """
        ...

    def measuring(
        self, device: Device, *, cancellation: Cancellation
    ) -> AbstractContextManager[MeasureOption]:
        """Return a builder, and a runner for `device`, for the length of one step."""
        ...

    def calibrate(self, device: Device, *, cancellation: Cancellation) -> CalibrationRun:
        """Run the calibration kernel on a device that nobody else uses."""
        ...

    def measure_peak(self, device: Device, *, cancellation: Cancellation) -> Peak:
        """Measure the peak of a device that nobody else uses."""
        ...

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
        """Compile, check and time a network. The artifact has the name of its file, `output`.

        Without a device that happens here, with the processor time that nobody else wants, for whatever device model the records
        are of: kernels are checked for their results alone, as their times would tell nothing.
        """
        ...

    def time_network(
        self, files: NetworkFiles, *, device: Device, sampling_sec: float, cancellation: Cancellation
    ) -> Latency:
        """Time a network alone on a device, by the process that measures a search's kernels there."""
        ...

    def runs_here(self, target: Target) -> bool:
        """Return whether this machine can run what is compiled for a target."""
        ...

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
        """Time an artifact beside its untuned network, ONNX Runtime and other runtimes, as its compile did."""
        ...

    def kernel_source(
        self, task: TuningTask, record: TuningRecord, *, cancellation: Cancellation
    ) -> KernelSource:
        """Return the source of a task under a record's config, as text."""
        ...

    def close(self) -> None: ...
