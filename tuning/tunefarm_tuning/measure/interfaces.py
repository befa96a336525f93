"""Building and measuring candidates: values in, values out; a failed candidate is data.

A `Builder` turns configs into kernels, a `Runner` times kernels on a device. Both take a batch and return
one result per input, in order; neither raises for a bad candidate. A result holds a value or a `Failure`, never both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from tunefarm_tuning.core.latency import relative_noise
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

if TYPE_CHECKING:
    # It brings NumPy, which a server that only keeps records has no need of.
    from tunefarm_tuning.space.config_space import ConfigSpace


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no value."""

    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInput:
    task: TuningTask
    config: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """A built kernel, or why there is none.

    Attributes:
        config: The config as applied: an illegal compute location snaps to a legal one, so this can
            differ from the config asked for. Trials are identified and deduplicated by it.
        artifact_path: Shared library whose ``main`` takes the workload's arguments.
        build_sec: Wall-clock of applying and building, waiting not counted.
        apply_sec: Of that, applying the config: the schedule and its postprocessors. 0 where nothing was applied: the
            kernel was known already, or the build ended before it could tell.
    """

    config: Config
    build_sec: float
    apply_sec: float = 0.0
    artifact_path: Path | None = None
    failure: Failure | None = None

    @property
    def refused(self) -> bool:
        """Whether the config could not be applied: nothing was built, and it took about ten milliseconds."""
        return self.failure is not None and self.failure.outcome is Outcome.INSTANTIATION_ERROR

    def delete_artifact(self) -> None:
        """Delete the built kernel, if there is one and it is still there."""
        if self.artifact_path is not None:
            self.artifact_path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureInput:
    """A kernel to time.

    Attributes:
        rival_sec: Best cost known of the task; None if there is none. A kernel that is hopeless against it is timed
            briefly only.
    """

    task: TuningTask
    artifact_path: Path
    rival_sec: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureResult:
    """A kernel's timing, or why there is none.

    Attributes:
        samples_sec: Raw mean seconds per call, one per repeat, in measuring order; empty on failure.
        run_sec: Wall-clock of the whole measurement (upload, warm-up and timing), queueing not counted.
        truncated: The kernel was hopeless against its rival, and timing ended after a few short samples.
        facts: What is to be kept with the samples: how the GPU was, say (see `tvm.device.gpu`). JSON values.
    """

    run_sec: float
    samples_sec: tuple[float, ...] = ()
    failure: Failure | None = None
    truncated: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost_sec(self) -> float | None:
        """Median of the samples; None on failure."""
        return median(self.samples_sec) if self.samples_sec else None

    @property
    def noise(self) -> float | None:
        """Spread of the samples relative to their median (see `relative_noise`); None where there are too few."""
        return relative_noise(self.samples_sec)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What a measurement ran on. `model` groups devices whose timings can be compared."""

    model: str
    num_cores: int
    name: str = "local"

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, "num_cores": self.num_cores, "name": self.name}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DeviceInfo:
        return cls(model=data["model"], num_cores=int(data["num_cores"]), name=data.get("name", "local"))


class Builds(Iterator[tuple[int, BuildResult]], Protocol):
    """A batch that is being built: results as they get ready, each with its input's index.

    Who leaves it before its end closes it.
    """

    def close(self) -> None:
        """Stop the builds that are left, and delete what nobody took. Of a builder's own class: from any thread."""
        ...


class Builder(Protocol):
    """Builds candidates.

    Ordering: `build` returns one result per input, in the input's order; `build_each` yields them as they get ready.
    Concurrency: any thread; batches that came earlier are built first. A builder runs a batch in parallel inside. One
        whose `build_each` begins when it is called, and not at the first `next`, builds while its caller does
        something else.
    Failure: a bad candidate, a compiler crash and a time-out are results; the builder stays usable.
    Ownership: the caller deletes the artifacts (`BuildResult.artifact_path`) it was given; `close` deletes the rest.
    """

    @property
    def workers(self) -> int:
        """How many candidates it builds at a time."""
        ...

    def config_space(self, task: TuningTask) -> ConfigSpace:
        """Return the task's config space.

        Raises:
            InvalidInputError: If the workload cannot be scheduled at all (the message says why).
        """
        ...

    def build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]: ...

    def build_each(self, inputs: Sequence[BuildInput]) -> Builds: ...

    def close(self) -> None: ...


class Runner(Protocol):
    """Measures built candidates on one device, one at a time.

    Ordering: `run` and `run_interleaved` return one result per input, in the input's order.
    Rivals: `run` may time a kernel briefly that is hopeless against `MeasureInput.rival_sec`, or against the best kernel
        of the same task before it in the batch (`MeasureResult.truncated`).
    Concurrency: one caller at a time.
    Failure: a bad candidate is a result; so is a lost device (`Outcome.INFRASTRUCTURE_ERROR`), and the rest of the
        batch then ends the same way. No call outlasts the sum of its candidates' time-outs by more than a few seconds.
    """

    @property
    def device(self) -> DeviceInfo: ...

    @property
    def shares_host(self) -> bool:
        """Whether building on this machine disturbs the timings: the device is, or may be, this machine's CPU."""
        ...

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]: ...

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        """Time kernels of one workload in turn (A B C, A B C, ...), `rounds` samples of each; rivals are ignored.

        Where one of them breaks, each is measured by itself, so that the others have their samples.

        Raises:
            ValueError: If the inputs are of different workloads or targets.
        """
        ...

    def release(self) -> None:
        """Let go of the device for now: between rounds another process may want it. The next call takes it again."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOption:
    """How long a candidate is timed.

    Many short samples: their median is the cost, and on a shared machine an interruption then spoils one of ten. The
    default takes about 35 ms for a kernel that may be the best, and one or two calls for one that is hopeless.

    Attributes:
        repeat: Samples per candidate at most.
        number: Calls per sample, at least; raised until a sample lasts `min_repeat_ms`.
        min_repeat_ms: Shortest time of one sample.
        max_timing_ms: Fewer samples are taken, but not under three, where `repeat` of them would take longer than this.
        timeout_sec: Hard limit on one candidate, session and upload included.
    """

    repeat: int = 10
    number: int = 1
    min_repeat_ms: float = 3.0
    max_timing_ms: float = 100.0
    timeout_sec: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOption:
    """Who builds and who measures (AutoTVM's ``measure_option``)."""

    builder: Builder
    runner: Runner
