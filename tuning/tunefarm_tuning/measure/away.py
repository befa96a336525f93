"""Whether a device whose session ended is away, or did something wrong in the session."""

from __future__ import annotations

from typing import NoReturn

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.device import RemoteDevice


def raise_lost_or_failed(
    error: DeviceLostError, device: RemoteDevice, cancellation: Cancellation
) -> NoReturn:
    """Raise what a failure says about the device: with the field ``away`` if it was lost, and did not fail.

    A session ends with the device's agent and network as with a kernel that crashes. So another session is opened: a device that is there
    opens it.

    Args:
        error: How the device failed.
        device: The device, under a lease of the caller's.
        cancellation: Ends the call within seconds.

    Raises:
        DeviceLostError: Always.
    """
    if not error.fields.get("session_ended"):
        raise error
    # Imported late, as it imports NumPy: the API, which only stores calibrations, runs without NumPy.
    from tunefarm_tuning.measure.runner.rpc import RpcRunner

    with RpcRunner(device) as sessions, cancellation.attach(sessions):
        problem = sessions.check()
    if problem is None:
        raise error
    raise DeviceLostError(f"{error.message} (after that: {problem})", away=True) from error
