"""Interfaces of building and measuring candidates: values in, values out; a failed candidate is data.

A `Builder` turns configs into kernels, a `Runner` times kernels on a device. Both take a batch and return one result per input,
in order. Neither raises for a bad candidate: a result holds a value or a `Failure`, never both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.core.latency import relative_noise
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

_LONGEST_MESSAGE = 10_000
_MOST_FACTS = 64 << 10  # as JSON

if TYPE_CHECKING:
    # It imports NumPy, which a server that only stores records does not need.
    from tunefarm_tuning.space.config_space import ConfigSpace


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed build or measurement.

    Attributes:
        outcome: Its class.
        message: For people; cut where it is long.
        code: What happened, as the code of an error: `core.errors.BROKE_PROTOCOL`, `gpu.state.BUSY`; empty if the class says it all.
    """

    outcome: Outcome
    message: str
    code: str = ""

    @staticmethod
    def of(error: TunefarmError) -> Failure:
        """Return the failure of a device, or of what leads to it."""
        return Failure(Outcome.INFRASTRUCTURE_ERROR, error.message, error.code)

    @staticmethod
    def from_json(data: Sequence[str]) -> Failure:
        """Read a failure in a child's reply: class, message, and perhaps a code."""
        outcome, *texts = data
        return Failure(Outcome(outcome), *map(str, texts))

    def __post_init__(self) -> None:
        if len(self.message) > _LONGEST_MESSAGE:
            object.__setattr__(self, "message", f"{self.message[:_LONGEST_MESSAGE]}…")


def told_facts(facts: Any) -> dict[str, Any]:
    """Return the facts that a child tells of a candidate; none if they are too many: they are stored with each trial."""
    return dict(facts) if len(json.dumps(facts)) <= _MOST_FACTS else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInput:
    """A config to build for a task."""

    task: TuningTask
    config: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """A built kernel, or why there is none.

    Attributes:
        config: The config as applied, which can differ from the requested one: an illegal compute location becomes a legal one.
            Trials are identified and deduplicated by it.
        build_sec: Wall-clock seconds of applying the config and building, without waiting.
        apply_sec: The part of `build_sec` for applying the config: the schedule and its postprocessors. 0 if nothing was
            applied, since the kernel was known already or the build ended before.
        artifact_path: Shared library whose ``main`` takes the workload's arguments; None on failure.
        failure: Why there is no kernel; None if there is one.
        facts: JSON values to store with the trial: what a GPU's machine code uses (`records.record.GPU_CODE`).
    """

    config: Config
    build_sec: float
    apply_sec: float = 0.0
    artifact_path: Path | None = None
    failure: Failure | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

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
        artifact_path: The kernel's shared library, from `BuildResult`.
        rival_sec: Seconds per call of the best kernel known of the task; None if there is none. A kernel that is hopeless against
            it is timed only briefly.
    """

    task: TuningTask
    artifact_path: Path
    rival_sec: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOrigin:
    """What a farm's gateway and worker say of the session in which something was measured. A device has no say in it.

    Attributes:
        certificate_sha256: SHA-256 of the client certificate (DER) by which the device's agent was connected, as hexadecimal digits.
        ticket_jti: The id of the token, signed for the lease, that opened the session.
    """

    certificate_sha256: str
    ticket_jti: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureResult:
    """A kernel's timing, or why there is none.

    Attributes:
        run_sec: Wall-clock seconds of the measurement (upload, warm-up and timing), without queueing.
        samples_sec: Mean seconds per call, one value per sample, in measuring order; empty on failure.
        failure: Why there is no timing; None if there is one.
        truncated: Whether timing ended after a few short samples, since the kernel was hopeless against its rival.
        facts: JSON values to store with the samples, such as the GPU's state (see `tvm.device.gpu`).
        origin: The session that it was measured in; None unless a farm's gateway joined it.
    """

    run_sec: float
    samples_sec: tuple[float, ...] = ()
    failure: Failure | None = None
    truncated: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    origin: SessionOrigin | None = None

    @property
    def cost_sec(self) -> float | None:
        """Median of the samples; None on failure."""
        return median(self.samples_sec) if self.samples_sec else None

    @property
    def noise(self) -> float | None:
        """Spread of the samples relative to their median (see `relative_noise`); None for fewer than three samples."""
        return relative_noise(self.samples_sec)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo(JsonFields):
    """The device of a measurement.

    Attributes:
        model: Hardware model: timings of one model are comparable.
        num_cores: Physical cores.
        name: The device's own name.
    """

    model: str
    num_cores: int
    name: str = "local"


class Builds(Iterator[tuple[int, BuildResult]], Protocol):
    """A batch that is being built: results as they become available, each with its input's index.

    A caller that does not take all results must close it.
    """

    def close(self) -> None:
        """Stop the remaining builds, and delete kernels that nobody took. A builder's own class allows it from any thread."""
        ...


class Builder(Protocol):
    """Builds candidates. `builder.BUILDERS` lists the implementations.

    Ordering: `build` returns one result per input, in the input's order; `build_each` yields results as they become available.
    Concurrency: any thread; earlier batches are built first. A batch is built in parallel. If `build_each` starts when it is
        called, and not at the first `next`, it builds while the caller does something else.
    Failure: a bad candidate, a compiler crash and a time-out are results; the builder stays usable.
    Ownership: the caller deletes the artifacts (`BuildResult.artifact_path`) that it took; `close` deletes all others.
    """

    @property
    def workers(self) -> int:
        """How many candidates are built in parallel."""
        ...

    def config_space(self, task: TuningTask) -> ConfigSpace:
        """Return the task's config space.

        Raises:
            InvalidInputError: If the workload cannot be scheduled at all (the message says why).
        """
        ...

    def build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]:
        """Build candidates, and return one result per input, in the input's order."""
        ...

    def build_each(self, inputs: Sequence[BuildInput]) -> Builds:
        """Build candidates, and yield the results as they become available."""
        ...

    def close(self) -> None:
        """End all builds and delete the artifacts that nobody took, from any thread."""
        ...


class Runner(Protocol):
    """Measures built candidates on one device, one at a time. `runner.RUNNERS` lists the implementations.

    Ordering: `run` and `run_interleaved` return one result per input, in the input's order.
    Rivals: `run` may time a kernel only briefly if it is hopeless against `MeasureInput.rival_sec`, or against an earlier kernel
        of the same task in the batch (`MeasureResult.truncated`).
    Concurrency: one caller at a time.
    Failure: a bad candidate is a result. So is a lost device (`Outcome.INFRASTRUCTURE_ERROR`), which is then the result of the rest
        of the batch, too. A call takes at most a few seconds longer than the sum of its candidates' time limits.
    """

    @property
    def device(self) -> DeviceInfo:
        """The device that timings are recorded under."""
        ...

    @property
    def shares_host(self) -> bool:
        """Whether building on this machine disturbs the timings, since the device is, or may be, this machine's CPU."""
        ...

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """Measure built candidates, and return one result per input, in the input's order."""
        ...

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        """Time kernels of one workload in turn (A B C, A B C, ...), `rounds` samples of each; rivals are ignored.

        If one of them fails, each is measured by itself, so that the others have their samples.

        Raises:
            ValueError: If the inputs are of different workloads or targets.
        """
        ...

    def release(self) -> None:
        """Release the device between rounds, for other processes. The next call takes it again."""
        ...

    def close(self) -> None:
        """End the measurement and free the device, from any thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOption:
    """How long a candidate is timed.

    The cost is the median of many short samples, so that an interruption on a shared machine spoils one of ten. The default takes
    about 35 ms for a kernel that may be the best, and one or two calls for a hopeless one.

    Attributes:
        repeat: The most samples per candidate.
        number: The fewest calls per sample; raised until a sample lasts `min_repeat_ms`.
        min_repeat_ms: Shortest time of one sample, in milliseconds.
        max_timing_ms: If `repeat` samples would take longer than this, fewer are taken, but at least three.
        timeout_sec: Hard limit for one candidate in seconds, with session and upload.
    """

    repeat: int = 10
    number: int = 1
    min_repeat_ms: float = 3.0
    max_timing_ms: float = 100.0
    timeout_sec: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOption:
    """The builder and the runner of a search.

    Source: AutoTVM's ``measure_option``.
    """

    builder: Builder
    runner: Runner
