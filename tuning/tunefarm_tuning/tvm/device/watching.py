"""What a device says of its machine: its libraries, and the other work on it while something is timed in a session with it."""

from __future__ import annotations

import json
from typing import Any

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure import device_functions
from tunefarm_tuning.measure.machine_watch import MachineState, machine_state, yardstick_loop_sec
from tunefarm_tuning.tvm.device.session import DeviceSession


def state_of_machine(session: DeviceSession) -> MachineState | None:
    """Return the counters of the device's machine; None if it does not tell."""
    if session.is_local:
        return machine_state()
    read = session.offered(device_functions.MACHINE_STATE)
    state = None if read is None else json.loads(str(read()))
    return None if state is None else MachineState.from_json(state)


def loop_of_machine(session: DeviceSession) -> float | None:
    """Run the device's yardstick loop; return its seconds, None if the device has none."""
    if session.is_local:
        return yardstick_loop_sec()
    loop = session.offered(device_functions.YARDSTICK_LOOP)
    return None if loop is None else float(loop())


def libraries_of(session: DeviceSession) -> dict[str, str]:
    """Have the session load the libraries that kernels may call; return the versions of those that it has, by name."""
    read: Any | None = device_functions.libraries_text
    if not session.is_local:
        read = session.offered(device_functions.LIBRARIES)
    versions = {} if read is None else json.loads(str(read()))
    return {clean(str(name), 40): clean(str(version), 40) for name, version in versions.items()}
