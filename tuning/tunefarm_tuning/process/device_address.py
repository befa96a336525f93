"""Where a device is found."""

from __future__ import annotations

import contextlib
import functools
import socket
from dataclasses import dataclass, field
from typing import Any

from tunefarm_tuning.core.json_fields import OMIT_DEFAULT, JsonFields


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAddress(JsonFields):
    """A tracker and the device's own key there, or a gateway that the device is connected with.

    Attributes:
        tracker_host: Host of the tracker, or of the gateway.
        tracker_port: Its port.
        key: What the device is called there.
        authority: For a gateway, the certificate (PEM) of the authority that it is known by; None for a tracker.
    """

    tracker_host: str
    tracker_port: int
    key: str
    authority: str | None = field(default=None, metadata=OMIT_DEFAULT)


@functools.lru_cache(maxsize=256)
def is_own_address(host: str) -> bool:
    """Return whether `host` is a loopback address or another address of this machine; True if unknown.

    The near end of a tunnel looks like this machine, too. Then builds and measurements merely do not overlap.
    """
    try:
        addresses = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return True
    return any(_is_own(family, address) for family, _, _, _, address in addresses)


def _is_own(family: int, address: tuple[Any, ...]) -> bool:
    # Connecting a datagram socket sends nothing: it only picks the address that it would send from.
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return bool(probe.getsockname()[0] == address[0])
    return False
