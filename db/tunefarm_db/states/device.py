"""The states of a device, the events that change them, and the one table of transitions.

``leased`` is not in it: a device is shown as leased while it is online and somebody's lease of it runs, and leases end
by the clock, without anybody writing a state.
"""

from __future__ import annotations

from enum import StrEnum


class DeviceState(StrEnum):
    """Whether a device gets work: only online ones do."""

    OFFLINE = "offline"
    CHECKING = "checking"  # ready, but the calibration kernel has to run clean first
    ONLINE = "online"
    LEASED = "leased"  # online, and at work; shown, never stored
    DRAINING = "draining"  # finishes its round, and gets no further one
    QUARANTINED = "quarantined"
    REMOVED = "removed"


UP_STATES: frozenset[DeviceState] = frozenset({DeviceState.ONLINE, DeviceState.LEASED})
"""Of a device that takes part: free, or at work."""


class DeviceEvent(StrEnum):
    """What happens to a device."""

    JOIN = "join"  # its agent registered: a new life of the device begins
    READY = "ready"  # the agent says that it can be measured on
    UNREADY = "unready"  # the agent says that it cannot
    SILENT = "silent"  # no sign of life for too long
    DOUBT = "doubt"  # an infrastructure error, or the last calibration is long ago
    CLEAN = "clean"  # the calibration kernel ran well
    FAIL = "fail"  # it did not, or measurements failed again and again
    DRAIN = "drain"  # a person: no further round
    QUARANTINE = "quarantine"  # a person: no work
    RELEASE = "release"  # a person: as if it had just come
    REMOVE = "remove"  # a person: forget it


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
"""Event -> state -> the state that follows. In a state that an event does not name, it changes nothing."""
