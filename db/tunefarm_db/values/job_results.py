"""Values of what a job leaves: trials, traces, events, artifacts, drafts and timings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tunefarm_db.values.base import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrial:
    """A trial to be stored. See `Trial` for the fields."""

    position: int
    ordinal: int
    config_key: str
    asked_key: str
    outcome: str
    cost_sec: float | None
    message: str
    build_sec: float
    run_sec: float
    measured_at: float
    record_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(NewTrial):
    """A config that a job tried, and its outcome.

    Attributes:
        position: Index of the task in the job.
        round: Round of the job; `ordinal` counts within the round.
        config_key: `Config.key` as applied; `asked_key` as the tuner asked for it.
        outcome: A `tunefarm_tuning.measure.interfaces.Outcome`.
    """

    id: str
    job_id: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one attempt at a step, or an upload, spent its time on.

    Attributes:
        job_id: None of an upload and of an import: all jobs of the model share them.
        spans: `Span.to_json` of each, by the clocks of the machines that worked.
        dropped: How many more there were.
    """

    id: str
    model_id: str
    job_id: str | None
    spans: list[Any]
    dropped: int
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a job. `seq` counts from 1 within the job, without gaps."""

    job_id: str
    seq: int
    kind: str
    data: Json
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A job's result: the packed file's blob, its manifest and its report.

    Attributes:
        envelope: The signed statement about it, as a line of JSON; None if the farm had no key when it was compiled.
    """

    id: str
    job_id: str
    sha256: str
    size_bytes: int
    name: str
    manifest: Json
    report: Json
    created_at: float
    envelope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a job offers until it has an artifact: the untuned network from its first seconds on, or one of its kernels so far.

    Attributes:
        tasks: The tuning tasks of the network.
        covered: How many of them run a tuned kernel.
        envelope: As `Artifact.envelope`.
    """

    job_id: str
    sha256: str
    size_bytes: int
    name: str
    tasks: int
    covered: int
    created_at: float
    envelope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTiming:
    """A network that a search compiled with its kernels so far, and how fast it was on a device of the search.

    Attributes:
        number: The round of the draft step that compiled it; 0 is the untuned network.
        sha256: Its artifact's blob, and `inputs_sha256` that of its inputs; both are kept until it was timed.
        tasks: The tuning tasks of the network. `covered`: how many of them run a tuned kernel.
        began_sec: Seconds of search when its compile began.
        costs: Best cost by the position of the task, as far as it was known then.
        expected_sec: How long timing it should take.
        tries: How often that was begun.
        not_before: Before this time, nobody else begins.
        error: Why it cannot be timed; None if it was, or may be.
        latency_sec: Seconds per inference; None until it was timed. `low_sec` and `high_sec` are its 95 % interval.
        quiet: Whether other work hardly slowed it; None if nobody looked.
        device: The name of the device.
        tuned_sec: Seconds of search when it was timed.
        spent_sec: What the timing took.
        envelope: The signed statement about the artifact, as a draft's.
    """

    job_id: str
    number: int
    sha256: str
    inputs_sha256: str
    size_bytes: int
    name: str
    tasks: int
    covered: int
    began_sec: float
    costs: Json
    expected_sec: float
    tries: int
    not_before: float
    error: Json | None
    latency_sec: float | None
    low_sec: float | None
    high_sec: float | None
    quiet: bool | None
    device_id: str | None
    device: str | None
    tuned_sec: float | None
    spent_sec: float
    created_at: float
    timed_at: float | None
    envelope: str | None = None

    @property
    def waits(self) -> bool:
        """Whether it is still to be timed."""
        return self.latency_sec is None and self.error is None
