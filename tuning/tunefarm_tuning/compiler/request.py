"""The request of a compile, and how its progress is reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tunefarm_tuning.compiler.session import CompileLimits, KernelInfo
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.measure.device import RemoteDevice, device_kind, is_this_machine
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.findings import ScopedFindings
from tunefarm_tuning.records.history import History
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision

OnProgress = Callable[[str, float], None]
"""Called with the name of a phase and the share of it that is done (0.0 to 1.0)."""

LAST_CHECKS_SEC = 15.0
"""Seconds that the last ablation, comparing, timing and packing the network take at the end of a compile, as a rule."""
PACK_SEC = 3.0
"""The same of packing alone."""

_KEEPS_UP_TO_BYTES = 64 << 20

PHASES = ("load", "check-kernels", "build-model", "check-model", "measure", "other-shapes", "pack")
"""The phases of a compile, in order."""


class Progress:
    """Tells the caller the progress of a compile, times its phases, and ends it at the next step after a cancel.

    Attributes:
        phases_sec: Wall-clock seconds of each phase that is over.
    """

    def __init__(self, tell: OnProgress, cancellation: Cancellation) -> None:
        self._tell = tell
        self._cancellation = cancellation
        self._phase = ""
        self._began = time.monotonic()
        self.phases_sec: dict[str, float] = {}

    @property
    def elapsed_sec(self) -> float:
        """Seconds since the compile began."""
        return time.monotonic() - self._began

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the block as one of `PHASES`."""
        self._phase = name
        self.step(0.0)
        started = time.monotonic()
        with span(name, SpanKind.PHASE):
            yield
        self.phases_sec[name] = time.monotonic() - started
        self.step(1.0)

    def step(self, done: float) -> None:
        """Tell which share of the current phase is done.

        Raises:
            CancelledError: If the user asked to stop.
        """
        if self._cancellation.cancelled:
            raise CancelledError("the compile was cancelled")
        self._tell(self._phase, done)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """The request of a compile: model, device, limits. See `compile` for the common fields.

    Attributes:
        max_error: As for `compile`.
        goal_sec: As for `compile`.
        samples: The user's files of samples.
        baselines: Names of other runtimes to time (`measure.baselines.runtimes.KINDS`).
        libraries: Libraries that may compute kernels, by TVM's names (`Target.libraries`).
        keep_inputs: Where the inputs that the network is compared on first are copied to; None if nobody needs them.
        folder: Where libraries and inputs are written on the way; the caller deletes it.
    """

    model: Model
    target: Target
    history: History
    device: RemoteDevice | None
    name: str
    libraries: tuple[str, ...] = ()
    precision: Precision = Precision.AS_MODEL
    max_error: float | None = None
    baseline: bool
    baselines: tuple[str, ...] = ()
    other_shapes: bool = True
    limits: CompileLimits
    goal_sec: float | None = None
    seed: int
    samples: tuple[Path, ...] = ()
    keep_inputs: Path | None = None
    folder: Path
    progress: Progress
    cancellation: Cancellation

    @property
    def device_model(self) -> str:
        """The device model whose records are valid."""
        return self.device.info.model if self.device is not None else host_device_model()

    @property
    def findings(self) -> ScopedFindings:
        """What earlier compiles for this target and device model found out."""
        return self.history.findings.within(
            target=self.target.key, device_model=self.device_model, toolchain=toolchain_key()
        )

    def spare_sec(self, most_sec: float, *, ahead_sec: float = LAST_CHECKS_SEC) -> float:
        """Return how long work that only refines the result may take: `most_sec`, or what the goal leaves of it.

        Args:
            most_sec: Seconds that the work may take without a goal.
            ahead_sec: Seconds that what must follow takes, as a rule.
        """
        if self.goal_sec is None:
            return most_sec
        return min(most_sec, max(self.goal_sec - self.progress.elapsed_sec - ahead_sec, 0.0))

    @property
    def optional_sec(self) -> float | None:
        """How long something may take that the artifact can do without: what the goal leaves; None without a limit.

        A goal of 0 says that nothing may be refined, and limits nothing else.
        """
        if not self.goal_sec:
            return None
        return max(self.goal_sec - self.progress.elapsed_sec - PACK_SEC, 0.0)

    def find_record(self, task: KernelInfo) -> tuple[TuningRecord | None, MissReason | None, str]:
        """Return a task's best record that holds for this target, device model and toolchain; else why there is none."""
        return self.history.find(
            task.workload_key,
            target_key=self.target.key,
            device_model=self.device_model,
            toolchain=toolchain_key(),
        )

    @property
    def on_gpu(self) -> bool:
        """Whether the target is a GPU."""
        return device_kind(self.target) == "cuda"

    @property
    def may_keep_compiler(self) -> bool:
        """Whether the compiler may stay open, with the network in memory, while later phases run: not that of a large file."""
        return self.model.path.stat().st_size <= _KEEPS_UP_TO_BYTES

    @property
    def here(self) -> bool:
        """Whether the device is this machine."""
        return is_this_machine(self.device)

    @property
    def times_onnx_runtime(self) -> bool:
        """Whether ONNX Runtime is timed beside the network, on this machine's CPU."""
        return self.baseline and self.here and not self.on_gpu

    @property
    def output_names(self) -> list[str]:
        """The names of the model's outputs."""
        return [spec.name for spec in self.model.outputs]
