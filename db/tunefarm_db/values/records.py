"""Values of workloads, their config spaces, records and kernel sources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunefarm_db.values.base import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kernel's computation (`tunefarm_tuning.workload.task.Workload`) under one toolchain."""

    key: str
    toolchain: str
    name: str
    flops: float
    args: list[Json]
    ir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a compile found out about a kernel or an alternative; see `tunefarm_tuning.records.findings`."""

    key: str
    value: Json
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The config space of a workload on a target.

    Attributes:
        space: `ConfigSpace.to_json`; `space_key` is `ConfigSpace.key`.
        family: `ConfigSpace.family`; None if an older release stored it.
        extents: `ConfigSpace.extents`.
        revision: `tunefarm_tuning.workload.revisions.SPACES` of the release that stored it.
    """

    workload_key: str
    target_key: str
    toolchain: str
    space: Json
    space_key: str
    family: str | None
    extents: list[int]
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to be stored. See `Record` for the fields."""

    workload_key: str
    target_key: str
    device_model: str
    toolchain: str
    space_key: str
    config: list[Any]
    outcome: str
    cost_sec: float | None
    samples_sec: list[float]
    build_sec: float
    measured_at: float
    tuner: str = ""
    message: str = ""
    extra: Json | None = None
    confirmed: bool = False
    device_id: str | None = None
    job_id: str | None = None
    certificate_sha256: str | None = None
    ticket_jti: str | None = None
    owner: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(NewRecord):
    """A measured fact (`tunefarm_tuning.records.record.TuningRecord`) and its origin.

    Attributes:
        config: `Config.to_json`.
        cost_sec: Median of the samples; None unless the outcome is ok.
        confirmed: Whether it is a confirmation, measured in turn with the task's other best configs.
        certificate_sha256: SHA-256 of the certificate by which the device's agent was connected with the gateway, as hexadecimal digits;
            None unless it was measured over one.
        ticket_jti: The id of the token, signed for the lease, that the gateway opened the session for; None likewise.
        owner: The key that imported it, or that this one was rotated from; None for what was measured here.
        size_bytes: What an imported record counts in its owner's bytes; None for what was measured here.
        superseded: A later confirming record of the same config counts in its place.
    """

    id: str
    superseded: bool
    created_at: float


class SourceState(StrEnum):
    """State of a kernel's source."""

    MAKING = "making"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of a config of a workload, for one target and toolchain. It can be generated again at any time.

    Attributes:
        key: Derived from all of these; see `tunefarm_app.records.kernel_sources`.
        record_id: A record of the config.
        target: As TVM's JSON.
        error: Why it could not be generated.
        sha256: The blob with its texts, when it is ready.
        updated_at: When its state last changed.
    """

    key: str
    record_id: str
    target: Json
    state: SourceState
    error: Json | None
    sha256: str | None
    size_bytes: int | None
    created_at: float
    updated_at: float
