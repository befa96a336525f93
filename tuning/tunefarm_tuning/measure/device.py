"""A device that is reached over the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.measure.interfaces import DeviceInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDevice:
    """A device with a TVM RPC server that a TVM tracker knows.

    Where a function takes ``RemoteDevice | None``, None is this machine.

    Attributes:
        key: Its own key at the tracker: one device has it, so that asking for the key gives this device.
        info: What its measurements are recorded under.
        kind: ``"cpu"`` or ``"cuda"``: where its kernels run.
        fence: Number of the lease under which it is used, growing with every lease: whoever has a lower one gives way. None
            where nobody else can want the device.
        clock_mhz: A GPU's clock when it was calibrated, where that is known: one that is much slower is held back.
    """

    tracker_host: str
    tracker_port: int
    key: str
    info: DeviceInfo
    kind: str = "cpu"
    fence: int | None = None
    clock_mhz: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "tracker_host": self.tracker_host,
            "tracker_port": self.tracker_port,
            "key": self.key,
            "info": self.info.to_json(),
            "kind": self.kind,
            "fence": self.fence,
            "clock_mhz": self.clock_mhz,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RemoteDevice:
        return cls(
            tracker_host=str(data["tracker_host"]),
            tracker_port=int(data["tracker_port"]),
            key=str(data["key"]),
            info=DeviceInfo.from_json(data["info"]),
            kind=str(data.get("kind", "cpu")),
            fence=None if data.get("fence") is None else int(data["fence"]),
            clock_mhz=None if data.get("clock_mhz") is None else float(data["clock_mhz"]),
        )
