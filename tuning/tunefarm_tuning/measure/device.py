"""The device that kernels run on: this machine, or a remote one behind a TVM tracker."""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.measure.interfaces import DeviceInfo
from tunefarm_tuning.target.host import host_device_model, num_cores
from tunefarm_tuning.target.target import Target

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDevice(JsonFields):
    """A device with a TVM RPC server that is registered at a TVM tracker.

    For functions that take ``RemoteDevice | None``, None is this machine.

    Attributes:
        tracker_host: Host name or address of the tracker.
        tracker_port: Port of the tracker.
        key: The device's own key at the tracker: no other device has it, so a request for the key gets this device.
        info: The model, cores and name that its measurements are recorded under.
        kind: ``"cpu"`` or ``"cuda"``: where its kernels run.
        fence: Number of the lease under which the device is used. It grows with every lease, and sessions with a lower number
            are ended. None if nobody else can use the device.
        clock_mhz: A GPU's clock at its calibration, in MHz; None if unknown. A GPU whose clock is much lower is throttled.
    """

    tracker_host: str
    tracker_port: int
    key: str
    info: DeviceInfo
    kind: str = "cpu"
    fence: int | None = None
    clock_mhz: float | None = None


def is_this_machine(device: RemoteDevice | None) -> bool:
    """Return whether a device is this machine, as far as that is known without asking it.

    A CPU behind a tracker on loopback that has this machine's model counts as this machine: the embedded farm's device is one.
    """
    if device is None:
        return True
    return (
        device.tracker_host in _LOOPBACK and device.kind == "cpu" and device.info.model == host_device_model()
    )


def wanted_threads(target: Target, device: RemoteDevice | None) -> int:
    """Return the number of threads for kernels: the device's cores, else the target's, else this machine's."""
    if device is not None:
        return device.info.num_cores
    cores = target.get("num-cores")
    return cores if target.kind == "llvm" and isinstance(cores, int) else num_cores()


def device_kind(target: Target) -> str:
    """Return TVM's name for the kind of device that a target's code runs on: ``"cpu"`` or ``"cuda"``."""
    return "cuda" if target.kind == "cuda" else "cpu"
