"""Schemas of devices."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Input, Output
from tunefarm_api.schemas.peak import DevicePeak
from tunefarm_db.values import DeviceState


class DeviceRegister(Input):
    """What a device agent says about its device."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "lab-node-3",
                    "device_key": "epyc",
                    "target": {"kind": "llvm", "mcpu": "znver5", "num-cores": 8},
                    "info": {"cpu": "AMD EPYC", "cores": 8, "memory_bytes": 67108864000},
                    "device_model": "amd-epyc-8c",
                    "rpc_key": "lab-node-3-1f2e3d",
                    "ready": False,
                }
            ]
        }
    )

    name: str = Field(
        description="Name of this one machine; registering it again renews what is known of it."
    )
    device_key: str = Field(description="The pool that it belongs to. Devices of a pool must be alike.")
    target: dict[str, Any] = Field(description="What it runs best, as TVM's target JSON.")
    info: dict[str, Any] = Field(description="More about it, for people.")
    device_model: str = Field(description="Groups devices whose timings can be compared.")
    rpc_key: str = Field(description="The key it waits under at the tracker, of this device alone.")
    tracker_host: str | None = Field(
        None,
        description="Where its RPC server is registered; null for the farm's own tracker, which the answer names.",
    )
    tracker_port: int | None = Field(None, strict=True, description="Port of that tracker.")
    ready: bool = Field(
        True,
        description="Whether it can be measured on already; if not, it is offline until a heartbeat says so.",
    )


class Heartbeat(Input):
    """A sign of life."""

    ready: bool = Field(True, description="Whether it can be measured on now; if not, it is offline.")
    reason: str = Field("", max_length=2000, description="Why it is not ready.")
    rpc_key: str | None = Field(
        None,
        description="The key under which it waits at the tracker. Where that is not the one on record, the answer is "
        "`device-not-found` (register again: the farm was restored from a backup, say), or `device-taken` as long as the "
        "agent on record is alive.",
    )
    info: dict[str, Any] | None = Field(
        None, description="What is known about it now; null where nothing changed."
    )


class EnrolmentTokenCreate(Input):
    """A request for an enrolment token."""

    device_key: str | None = Field(None, description="The pool that the device may join; null for any.")
    name: str | None = Field(
        None,
        description="The device that may use it (its GPUs too: NAME-gpu0, ...); null for any new one. A device that is "
        "known already needs a token with its name.",
    )
    valid_sec: float = Field(900.0, gt=0, le=7 * 86400, description="How long it is good.")


class EnrolmentToken(Output):
    """A token that lets one device enrol, once."""

    id: str = Field(description="Its identity among the keys.")
    token: str = Field(description="The token itself. It is shown this once.")
    expires_at: float = Field(description="When its time is over, Unix seconds.")
    name: str | None = Field(description="The device that may use it; null for any new one.")
    device_key: str | None = Field(description="The pool that the device may join; null for any.")


class Enrol(Input):
    """What a machine says to become a device. It shows an enrolment token in place of an API key."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "lab-node-3", "device_key": "epyc", "also": []}]}
    )

    name: str = Field(description="Name of the device.")
    device_key: str = Field(description="The pool that it joins.")
    also: list[str] = Field(
        default_factory=list,
        max_length=63,
        description="Names of the machine's further devices, where each of its GPUs is one.",
    )


class DeviceCredential(Output):
    """What an enrolled device speaks with from now on."""

    api_key: str = Field(
        description="An API key that can register this device and report for it, and nothing else. Shown this once."
    )
    name: str = Field(description="The device.")
    device_key: str = Field(description="Its pool.")


class MachineCredentials(DeviceCredential):
    """The credential of an enrolled device, and those of the other devices of its machine."""

    also: list[DeviceCredential] = Field(description="Of the further devices, in the order of the request.")


class DeviceOrder(Input):
    """Why a person takes a device out of work, or lets it back."""

    reason: str = Field("", max_length=500, description="For whoever wonders later.")


class Device(Output):
    """One machine of a pool."""

    id: str = Field(description="Its identity.")
    name: str = Field(description="Its name.")
    device_key: str = Field(description="The pool that it belongs to.")
    target: dict[str, Any] = Field(description="What it runs best, as TVM's target JSON.")
    info: dict[str, Any] = Field(description="More about it.")
    device_model: str = Field(description="Groups devices whose timings can be compared.")
    tracker_host: str = Field(description="Where its RPC server is registered.")
    tracker_port: int = Field(description="Where its RPC server is registered.")
    state: DeviceState = Field(
        description="Only online devices get work: `offline`, `checking` (the calibration kernel has to run clean "
        "first), `online`, `leased` (online, and at work), `draining` (gets no further round), `quarantined`, `removed`."
    )
    reason: str = Field(description="Why it is in its state.")
    state_since: float | None = Field(
        description="Since when, Unix seconds. Being leased is no state of its own here. Null where it is not known."
    )
    ready: bool = Field(description="Whether its agent says that it can be measured on.")
    held: bool = Field(description="A person put it into quarantine: only a person lets it out.")
    calibration: dict[str, Any] | None = Field(
        description="Its last clean run of the calibration kernel: `time_sec`, the `reference_sec` it is held against, "
        "`at` (Unix seconds), and the `key` under which times can be compared."
    )
    peak: DevicePeak | None = Field(
        None, description="What it can do at its best; null where that was never measured."
    )
    calibrate_at: float | None = Field(description="When it is to be calibrated again, Unix seconds.")
    last_seen_at: float = Field(description="Its last sign of life, Unix seconds.")
    lease_owner: str | None = Field(description="Who holds it.")
    leased_at: float | None = Field(
        description="When its newest lease began, Unix seconds; null where it has had none."
    )
    lease_until: float | None = Field(
        description="Until when, Unix seconds; its holder renews it as long as it lives."
    )
    work: str | None = Field(
        None,
        description="What it is held for: a kind of step (`tune`, `confirm`, `compile`), or `calibrate`; null while it is free.",
    )
    step_id: str | None = Field(None, description="The step that holds it; null where none does.")
    job_id: str | None = Field(
        None,
        description="The job that it is at work for; null where there is none, as while it is calibrated.",
    )
    fence: int = Field(description="Number of the newest lease.")
    created_at: float = Field(description="When it was first registered, Unix seconds.")
