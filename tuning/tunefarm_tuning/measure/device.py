"""The device that kernels run on: this machine, or a remote one behind a TVM tracker or a farm's gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.core.json_fields import OMIT_DEFAULT, JsonFields, fields_to_json
from tunefarm_tuning.measure.interfaces import DeviceInfo, SessionOrigin
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.target.host import host_device_model, machine_id, num_cores
from tunefarm_tuning.target.target import Target

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDevice(JsonFields):
    """A device with a TVM RPC server that is registered at a TVM tracker, or whose agent is connected with a farm's gateway.

    For functions that take ``RemoteDevice | None``, None is this machine.

    Attributes:
        tracker_host: Host name or address of the tracker, or of the gateway.
        tracker_port: Port of it.
        key: The device's own key at the tracker: no other device has it, so a request for the key gets this device.
        info: The model, cores and name that its measurements are recorded under.
        kind: ``"cpu"`` or ``"cuda"``: where its kernels run.
        fence: Number of the lease under which the device is used. It grows with every lease, and sessions with a lower number
            are ended. None if nobody else can use the device.
        clock_mhz: A GPU's clock at its calibration, in MHz; None if unknown. A GPU whose clock is much lower is throttled.
        authority: Of a gateway: the certificate (PEM) of the authority that it is known by; None for a tracker.
        machine_id: Behind a gateway: the id of the device's machine, as `machine_id` returns it there.
        ticket: Behind a gateway: returns a ticket for one session under the lease of that number, for the relay of that public key.
            The function never leaves this process.
        origin: Behind a gateway: reads the gateway's receipt of the session that a ticket opened. It never leaves this process either.
    """

    tracker_host: str
    tracker_port: int
    key: str
    info: DeviceInfo
    kind: str = "cpu"
    fence: int | None = None
    clock_mhz: float | None = None
    authority: str | None = field(default=None, metadata=OMIT_DEFAULT)
    machine_id: str | None = field(default=None, metadata=OMIT_DEFAULT)
    ticket: Callable[[int, str], str] | None = field(
        default=None, metadata=OMIT_DEFAULT, compare=False, repr=False
    )
    origin: Callable[[str, object], SessionOrigin] | None = field(
        default=None, metadata=OMIT_DEFAULT, compare=False, repr=False
    )

    @property
    def address(self) -> DeviceAddress:
        """Where it is found."""
        return DeviceAddress(
            tracker_host=self.tracker_host,
            tracker_port=self.tracker_port,
            key=self.key,
            authority=self.authority,
        )

    def to_json(self) -> dict[str, Any]:
        return fields_to_json(replace(self, ticket=None, origin=None))

    def opening(self, relay_key: str | None) -> dict[str, Any]:
        """Return what a child that is ready now needs to open one session, as JSON.

        Args:
            relay_key: The public key of the child's relay (`ChildProcess.relay_key`): a ticket is of use to that relay alone.

        Raises:
            TunefarmError: If there is no ticket for it, since the lease was lost.
        """
        if self.ticket is None:
            return self.to_json()
        if self.fence is None or relay_key is None:
            raise InvariantError("behind a gateway, a session belongs to a lease and to a relay")
        return {**self.to_json(), "ticket": self.ticket(self.fence, relay_key)}

    def origin_of(self, opening: Mapping[str, Any], receipt: object) -> SessionOrigin | None:
        """Return where the measurements of a session come from; None unless a farm's gateway joined it.

        Args:
            opening: What `opening` returned for it.
            receipt: What the child says to be the gateway's receipt.

        Raises:
            DeviceLostError: If it is not.
        """
        return None if self.origin is None else self.origin(opening["ticket"], receipt)


def is_this_machine(device: RemoteDevice | None) -> bool:
    """Return whether a device is this machine, as far as that is known without asking it.

    A CPU that has this machine's model counts as this machine if it is behind a tracker on loopback, or has this machine's id: the
    embedded farm's device is one.
    """
    if device is None:
        return True
    if device.authority is None:
        is_near = device.tracker_host in _LOOPBACK
    else:  # a device from anywhere can be connected with a gateway on loopback
        is_near = device.machine_id == machine_id()
    return is_near and device.kind == "cpu" and device.info.model == host_device_model()


def wanted_threads(target: Target, device: RemoteDevice | None) -> int:
    """Return the number of threads for kernels: the device's cores, else the target's, else this machine's."""
    if device is not None:
        return device.info.num_cores
    cores = target.get("num-cores")
    return cores if target.kind == "llvm" and isinstance(cores, int) else num_cores()


def device_kind(target: Target) -> str:
    """Return TVM's name for the kind of device that a target's code runs on: ``"cpu"`` or ``"cuda"``."""
    return "cuda" if target.kind == "cuda" else "cpu"
