"""Schemas of tuning records and workloads."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from tunefarm_api.schemas.base import Input, Output
from tunefarm_api.schemas.model import Tensor


class RecordImport(Output):
    """What became of the records of an import."""

    imported: int = Field(description="Number of records that were added.")
    left_out: dict[str, int] = Field(
        description="Number of others by reason: `on-record` if the farm has them already, `unknown-workload` if no model of the farm "
        "has the kernel with the record's version of the compiler, `space-changed` if they are of another config space than the "
        "kernel has here."
    )
    unchecked: int = Field(
        0,
        description="Number of added records of kernels that no job has tuned here: their configs could not be compared with the "
        "kernel's config space.",
    )


class RecordPurge(Input):
    """Whose records are to be deleted: those that a device measured, or that a key imported."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"device_id": "dev_01jzjs8y0efcztz2yhq6ztwqjn"}]}
    )

    device_id: str | None = Field(
        None, max_length=100, description="Identifier of the device; it may have been removed."
    )
    key_id: str | None = Field(
        None,
        max_length=100,
        description="Instead of a device: the key whose imports are to be deleted, with those of keys that it was rotated to or from.",
    )
    certificate_sha256: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="Only records of this certificate of its agent, as `certificate_sha256` of a record.",
    )
    ticket_jti: str | None = Field(
        None,
        pattern="^[A-Za-z0-9_-]{1,100}$",
        description="Only records of the session of this token, as `ticket_jti` of a record.",
    )

    @model_validator(mode="after")
    def _names_one_origin(self) -> Self:
        if (self.device_id is None) == (self.key_id is None):
            raise ValueError("name either a device_id or a key_id")
        if self.key_id is not None and (self.certificate_sha256 or self.ticket_jti):
            raise ValueError("certificate_sha256 and ticket_jti are of a device's records")
        return self


class PurgedRecords(Output):
    """What a purge deleted."""

    records: int = Field(description="Number of records that were deleted.")
    measured_by: list[str] = Field(description="Jobs that measured them.")
    used_by: list[str] = Field(description="Jobs whose artifacts were compiled with them.")


class Record(Output):
    """A tuning record: a measurement that holds for its workload, target, device model and toolchain together."""

    id: str = Field(description="Identifier.")
    workload_key: str = Field(description="Content hash of the computation.")
    kernel: str | None = Field(
        None, description="Name of the kernel, from the graph; null if the farm has only the record."
    )
    args: list[Tensor] | None = Field(
        None, description="The kernel's arguments, outputs last; null if the farm has only the record."
    )
    target_key: str = Field(description="Target of the build.")
    device_model: str = Field(description="Device model that it was measured on.")
    toolchain: str = Field(description="Compiler version.")
    space_key: str = Field(description="Config space of the config.")
    config: list[Any] = Field(description="Config: sketch and decisions.")
    outcome: str = Field(description="`ok`, or the class of failure.")
    cost_sec: float | None = Field(description="Median seconds per call; null unless the outcome is ok.")
    confirmed: bool = Field(
        False,
        description="Whether this is a confirmation: measured again, in turn with the task's other best configs.",
    )
    superseded: bool = Field(
        False, description="Whether a later confirmation of the same config replaces it."
    )
    samples_sec: list[float] = Field(description="Raw samples, seconds per call.")
    build_sec: float = Field(description="Seconds of the build.")
    measured_at: float = Field(description="Time of measurement, Unix seconds of the worker's clock.")
    tuner: str = Field(description="Search strategy that proposed it.")
    message: str = Field(description="Error message, if it failed.")
    extra: dict[str, Any] | None = Field(description="Details of the measurement.")
    device_id: str | None = Field(description="Device, if it belongs to this farm.")
    job_id: str | None = Field(description="Job that measured the record.")
    certificate_sha256: str | None = Field(
        None,
        description="SHA-256 of the client certificate by which the device's agent was connected with the gateway when this was measured; "
        "null if it came in another way, or from an earlier release.",
    )
    ticket_jti: str | None = Field(
        None,
        description="Identifier (`jti`) of the token, signed for the lease, that the gateway opened the session of the measurement for; "
        "null likewise.",
    )
    owner: str | None = Field(
        None,
        description="API key that imported it, or that this key was rotated from; null for what was measured here, and for imports of an "
        "earlier release.",
    )
    created_at: float = Field(description="Time of storing, Unix seconds.")
