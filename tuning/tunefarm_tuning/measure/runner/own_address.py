"""Is an address one of this machine's own?"""

from __future__ import annotations

import contextlib
import functools
import socket
from typing import Any


@functools.lru_cache(maxsize=256)
def is_own_address(host: str) -> bool:
    """Return whether `host` is a loopback address or another address of this machine; True where nobody can tell.

    A tunnel's near end looks like this machine, too: whoever measures through one only loses that builds and
    measurements overlap.
    """
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return True
    return any(_is_own(family, address) for family, _, _, _, address in found)


def _is_own(family: int, address: tuple[Any, ...]) -> bool:
    # Connecting a datagram socket sends nothing: it only picks the address that it would send from.
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return bool(probe.getsockname()[0] == address[0])
    return False
