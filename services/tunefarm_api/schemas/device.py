"""Schemas of devices."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import OWNER, Input, Output
from tunefarm_api.schemas.peak import DevicePeak
from tunefarm_db.values import DeviceState


class DeviceRegister(Input):
    """A device agent's description of its device."""

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

    name: str = Field(description="Name of the device. Registering the name again updates the device.")
    device_key: str = Field(description="Pool of the device. Devices of a pool must be identical.")
    target: dict[str, Any] = Field(description="Target of the device, as TVM's target JSON.")
    info: dict[str, Any] = Field(description="Further information for people.")
    device_model: str = Field(description="Hardware model: timings of one model are comparable.")
    rpc_key: str = Field(description="Key of this agent, unique.")
    tracker_host: str | None = Field(
        None,
        description="Tracker that an older agent waits at: refused with `tracker-removed`.",
    )
    tracker_port: int | None = Field(None, strict=True, description="Port of that tracker: refused as well.")
    by_gateway: bool = Field(
        False,
        description="Whether the agent can dial the farm's gateway. The response says whether there is one.",
    )
    ready: bool = Field(
        True,
        description="Whether it can measure already. If not, it is offline until a heartbeat reports ready.",
    )


class CertificateRequest(Input):
    """A device agent's request for a certificate for the farm's gateway."""

    rpc_key: str = Field(description="Key that the device was registered with.")
    certificate_request: str = Field(
        max_length=8192, description="Signing request (PKCS #10) for a key of the curve P-256, as PEM."
    )


class GatewayAccess(Output):
    """What a device needs to dial the farm's gateway."""

    host: str = Field(description="Host of the gateway; empty for the host that the device knows the API by.")
    port: int = Field(description="Port of the gateway.")
    certificate: str = Field(description="The device's certificate, as PEM; valid for a day.")
    authority: str = Field(description="Certificate of the farm's authority, as PEM.")


class Heartbeat(Input):
    """A heartbeat of a device."""

    ready: bool = Field(True, description="Whether it can measure now. If not, it is offline.")
    reason: str = Field("", max_length=2000, description="Why it is not ready.")
    rpc_key: str | None = Field(
        None,
        description="Key of the agent. If it differs from the stored key, the response is "
        "`device-not-found` (register again, for example after a restore), or `device-taken` while the "
        "stored agent is alive.",
    )
    info: dict[str, Any] | None = Field(
        None, description="Current information about the device; null if nothing changed."
    )


class EnrolmentTokenCreate(Input):
    """A request for an enrolment token."""

    device_key: str | None = Field(None, description="Pool that the device may join; null for any.")
    name: str | None = Field(
        None,
        description="Device that may use the token (and its GPUs: NAME-gpu0, ...); null for any new device. A known "
        "device needs a token with its name.",
    )
    valid_sec: float = Field(900.0, gt=0, le=7 * 86400, description="Validity in seconds.")
    guest: bool = Field(
        False,
        description="Whether the device belongs to somebody else: then its records count only in its pool, which the token must name.",
    )


class EnrolmentToken(Output):
    """A token with which one device can enrol, once."""

    id: str = Field(description="Identifier among the API keys.")
    token: str = Field(description="The token itself, shown only now.")
    expires_at: float = Field(description="Expiry time, Unix seconds.")
    name: str | None = Field(description="Device that may use the token; null for any new device.")
    device_key: str | None = Field(description="Pool that the device may join; null for any.")


class Enrol(Input):
    """A machine's request to become a device, authorized by an enrolment token instead of an API key."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "lab-node-3", "device_key": "epyc", "also": []}]}
    )

    name: str = Field(description="Name of the device.")
    device_key: str = Field(description="Pool to join.")
    also: list[str] = Field(
        default_factory=list,
        max_length=63,
        description="Names of the machine's other devices, if each GPU is a device.",
    )


class DeviceCredential(Output):
    """The credential of an enrolled device."""

    api_key: str = Field(
        description="API key limited to registering this device and reporting for it. Shown only now."
    )
    name: str = Field(description="Name of the device.")
    device_key: str = Field(description="Pool of the device.")
    expires_at: float | None = Field(
        description="End of its validity, Unix seconds. The agent replaces it before: a heartbeat's `renew_credential` says when."
    )


class MachineCredentials(DeviceCredential):
    """The credential of an enrolled device, and those of the other devices of its machine."""

    also: list[DeviceCredential] = Field(
        description="Credentials of the other devices, in the order of the request."
    )


class DeviceOrder(Input):
    """Reason for draining, quarantining or releasing a device."""

    reason: str = Field("", max_length=500, description="Reason, shown with the device.")


class ShownCredential(Output):
    """What is known of a device's credential; the key itself is not stored."""

    key_id: str = Field(description="Its identifier among the API keys, by which it is revoked.")
    created_at: float = Field(
        description="When the device enrolled, or replaced its former one; Unix seconds."
    )
    expires_at: float | None = Field(
        description="End of its validity, Unix seconds; null for one without an end, which the agent replaces at once."
    )
    last_used_at: float | None = Field(description="Last use, to a minute, Unix seconds.")


class Device(Output):
    """One machine of a pool."""

    id: str = Field(description="Identifier.")
    name: str = Field(description="Name of the device.")
    device_key: str = Field(description="Pool of the device.")
    target: dict[str, Any] = Field(description="Target of the device, as TVM's target JSON.")
    info: dict[str, Any] = Field(description="Further information.")
    device_model: str = Field(description="Hardware model: timings of one model are comparable.")
    by_gateway: bool = Field(False, description="Whether workers reach it, over the farm's gateway.")
    state: DeviceState = Field(
        description=f"State: {', '.join(f'`{state}` ({state.meaning})' for state in DeviceState)}."
    )
    reason: str = Field(description="Reason of the state.")
    state_since: float | None = Field(
        description="Start of the state, Unix seconds; leases do not change it. Null if unknown."
    )
    ready: bool = Field(description="Whether its agent reports that it can measure.")
    held: bool = Field(
        description="Whether a person quarantined the device; then only a person can release it."
    )
    calibration: dict[str, Any] | None = Field(
        description="Last clean calibration: `time_sec`, its `reference_sec`, `at` (Unix seconds), and `key` (times of "
        "one key are comparable)."
    )
    peak: DevicePeak | None = Field(None, description="Measured peak; null if never measured.")
    calibrate_at: float | None = Field(description="Time of the next calibration, Unix seconds.")
    last_seen_at: float = Field(description="Time of the last heartbeat, Unix seconds.")
    lease_owner: str | None = Field(description="Holder of the lease.")
    leased_at: float | None = Field(
        description="Start of the newest lease, Unix seconds; null if it never had one."
    )
    lease_until: float | None = Field(
        description="End of the lease, Unix seconds; its holder keeps renewing it."
    )
    work: str | None = Field(
        None,
        description="Purpose of the lease: a kind of step (`tune`, `confirm`, `compile`) or `calibrate`; null if free.",
    )
    step_id: str | None = Field(None, description="Step that holds the device; null if none.")
    job_id: str | None = Field(
        None,
        description="Job that holds the device; null if none, as during calibration.",
    )
    credential: ShownCredential | None = Field(
        None, description="Its newest valid credential; null if its agent uses another API key."
    )
    fence: int = Field(description="Fencing token of the newest lease.")
    owner: str | None = Field(description=OWNER)
    created_at: float = Field(description="Time of the first registration, Unix seconds.")


class BeatingDevice(Device):
    """A device, as the answer to its heartbeat."""

    renew_credential: bool = Field(
        False, description="Whether the credential that this request used should be replaced now."
    )
