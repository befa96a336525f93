"""What the repositories hand out of devices. `tunefarm_db.values` has these names as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class DeviceState(StrEnum):
    """Whether a device gets work: only online ones do. The ways between them are `device_state.TRANSITIONS`."""

    OFFLINE = "offline"
    CHECKING = "checking"  # ready, but the calibration kernel has to run clean first
    ONLINE = "online"
    LEASED = "leased"  # online, and at work; shown, never stored
    DRAINING = "draining"  # finishes its round, and gets no further one
    QUARANTINED = "quarantined"
    REMOVED = "removed"


UP_STATES: frozenset[DeviceState] = frozenset({DeviceState.ONLINE, DeviceState.LEASED})
"""Of a device that takes part: free, or at work."""


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """How many devices of a pool are in each state; a state that none is in is not named."""

    by_state: Mapping[DeviceState, int]

    @property
    def total(self) -> int:
        return sum(self.by_state.values())

    @property
    def up(self) -> int:
        return sum(count for state, count in self.by_state.items() if state in UP_STATES)

    @property
    def free(self) -> int:
        return self.by_state.get(DeviceState.ONLINE, 0)

    def __str__(self) -> str:
        """Return it as people are told: ``"0 of 3 online (1 draining, 2 offline)"``."""
        down = ", ".join(
            f"{count} {state}" for state, count in sorted(self.by_state.items()) if state not in UP_STATES
        )
        return f"{self.up} of {self.total} online" + (f" ({down})" if down else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One machine of a pool.

    Attributes:
        device_key: The pool. Devices of a pool are interchangeable.
        target: `Target.to_json` of what it runs best.
        device_model: Groups devices whose timings can be compared.
        rpc_key: The key under which its RPC server waits at the tracker; of this device alone.
        reason: Why it is in its state; empty while online.
        ready: Whether its agent says that it can be measured on.
        held: A person put it into quarantine: no calibration lets it out.
        calibration: The last clean run of the calibration kernel, as `Calibration.to_json`; None where there was none.
        calibrate_at: When it is to be calibrated (again).
        fence: Of its newest lease.
        state_since: Since when it has been in its state, whoever leased it meanwhile; None where that is not known.
        leased_at: When its newest lease began; None where it has none.
    """

    id: str
    name: str
    device_key: str
    target: Json
    info: Json
    device_model: str
    tracker_host: str
    tracker_port: int
    rpc_key: str
    state: DeviceState
    reason: str
    ready: bool
    held: bool
    calibration: Json | None
    calibrate_at: float | None
    last_seen_at: float
    lease_owner: str | None
    lease_until: float | None
    fence: int
    created_at: float
    state_since: float | None = None
    leased_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLease:
    """An exclusive, time-bounded hold of a device."""

    device: Device
    owner: str
    fence: int
    lease_until: float
