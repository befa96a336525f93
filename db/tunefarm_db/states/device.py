"""The states of a device, the events that change them, and the one table of transitions.

``leased`` is not in it: a device is shown as leased while it is online and somebody's lease of it runs, and leases end
by the clock, without anybody writing a state.
"""

from __future__ import annotations

from enum import StrEnum


class DeviceState(StrEnum):
    """Whether a device gets work: only online devices do. `TRANSITIONS` has the changes of state."""

    OFFLINE = "offline"
    CHECKING = "checking"
    ONLINE = "online"
    LEASED = "leased"  # shown, never stored
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    REMOVED = "removed"

    @property
    def meaning(self) -> str:
        """What the state means, as a clause without a subject; the API's documentation shows it."""
        return _MEANINGS[self]


_MEANINGS: dict[DeviceState, str] = {
    DeviceState.OFFLINE: "is not ready, or sent no heartbeat for too long",
    DeviceState.CHECKING: "waits for a clean calibration",
    DeviceState.ONLINE: "gets work",
    DeviceState.LEASED: "online and working",
    DeviceState.DRAINING: "finishes its round and gets no other",
    DeviceState.QUARANTINED: "gets no work until a clean calibration or a person releases it",
    DeviceState.REMOVED: "was removed by a person",
}

UP_STATES: frozenset[DeviceState] = frozenset({DeviceState.ONLINE, DeviceState.LEASED})
"""The states of a device that takes part: free or working."""


class DeviceEvent(StrEnum):
    """An event of a device; `TRANSITIONS` says what it changes."""

    JOIN = "join"  # its agent registered, and starts from the beginning
    READY = "ready"  # the agent says that the device can measure
    UNREADY = "unready"  # the agent says that the device cannot measure
    SILENT = "silent"  # no heartbeat for too long, or its connection was lost in its calibration
    DOUBT = "doubt"  # an infrastructure error, or the last calibration is long ago
    CLEAN = "clean"  # the calibration kernel ran well
    FAIL = "fail"  # the calibration failed, or measurements failed again and again
    DRAIN = "drain"  # a person: no further round
    QUARANTINE = "quarantine"  # a person, or an attack of the device: no work
    RELEASE = "release"  # a person: treat it as a new device
    REMOVE = "remove"  # a person: removed for good


_OFFLINE, _CHECKING, _ONLINE = DeviceState.OFFLINE, DeviceState.CHECKING, DeviceState.ONLINE
_DRAINING, _QUARANTINED, _REMOVED = DeviceState.DRAINING, DeviceState.QUARANTINED, DeviceState.REMOVED

TRANSITIONS: dict[DeviceEvent, dict[DeviceState, DeviceState]] = {
    DeviceEvent.JOIN: dict.fromkeys((_OFFLINE, _CHECKING, _ONLINE, _REMOVED), _OFFLINE),
    DeviceEvent.READY: {_OFFLINE: _CHECKING},
    DeviceEvent.UNREADY: dict.fromkeys((_OFFLINE, _CHECKING, _ONLINE), _OFFLINE),
    DeviceEvent.SILENT: dict.fromkeys((_CHECKING, _ONLINE), _OFFLINE),
    DeviceEvent.DOUBT: {_ONLINE: _CHECKING},
    DeviceEvent.CLEAN: {_CHECKING: _ONLINE, _QUARANTINED: _ONLINE},
    DeviceEvent.FAIL: dict.fromkeys((_CHECKING, _ONLINE, _QUARANTINED), _QUARANTINED),
    DeviceEvent.DRAIN: dict.fromkeys((_OFFLINE, _CHECKING, _ONLINE, _DRAINING), _DRAINING),
    DeviceEvent.QUARANTINE: dict.fromkeys(
        (_OFFLINE, _CHECKING, _ONLINE, _DRAINING, _QUARANTINED), _QUARANTINED
    ),
    DeviceEvent.RELEASE: {_DRAINING: _OFFLINE, _QUARANTINED: _OFFLINE},
    DeviceEvent.REMOVE: dict.fromkeys((_OFFLINE, _CHECKING, _ONLINE, _DRAINING, _QUARANTINED), _REMOVED),
}
"""Event -> state -> the state that follows. An event changes nothing in the states that it does not list."""
