"""Where compiled models run for their checks, and on how many threads."""

from __future__ import annotations

from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.target.host import host_device_model, num_cores
from tunefarm_tuning.target.target import Target

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def is_this_machine(device: RemoteDevice | None) -> bool:
    """Whether a device is this machine: what is known without asking it.

    A device behind a tracker on loopback, with this machine's model, is taken for it (the embedded farm's is).
    """
    if device is None:
        return True
    return (
        device.tracker_host in _LOOPBACK and device.kind == "cpu" and device.info.model == host_device_model()
    )


def wanted_threads(target: Target, device: RemoteDevice | None) -> int:
    """Return on how many threads kernels shall run: the device's cores, the target's, or this machine's."""
    if device is not None:
        return device.info.num_cores
    cores = target.get("num-cores")
    return cores if target.kind == "llvm" and isinstance(cores, int) else num_cores()


def device_kind(target: Target) -> str:
    """Return TVM's name of the kind of device that a target's code runs on."""
    return "cuda" if target.kind == "cuda" else "cpu"
