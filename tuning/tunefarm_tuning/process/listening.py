"""Listen on an address, or say in a sentence why that is not possible and what to do."""

from __future__ import annotations

import errno
import socket

from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TransientError, TunefarmError


def listen(host: str, port: int, *, backlog: int = 256) -> socket.socket:
    """Return a listening socket.

    Args:
        host: An address of this machine, or a name of one, of which that of IPv4 is taken; empty for all its networks.
        port: The port; 0 takes a free port.
        backlog: Connections that may wait.

    Raises:
        ConflictError: ``port-taken``.
        InvalidInputError: ``not-own-address``, ``port-not-allowed``.
        TransientError: ``cannot-listen``.
    """
    try:
        families = [entry[0] for entry in socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)]
        family = socket.AF_INET if socket.AF_INET in families else families[0]
        return socket.create_server((host, port), family=family, backlog=backlog)
    except UnicodeError:
        raise cannot_listen(host, port, socket.gaierror(socket.EAI_NONAME, "no name")) from None
    except OSError as error:
        raise cannot_listen(host, port, error) from None


def cannot_listen(host: str, port: int, error: OSError) -> TunefarmError:
    """Return the error of an address that cannot be listened on."""
    if error.errno == errno.EADDRINUSE:
        return ConflictError(
            f"port {port} of {host} is taken: another program listens there, perhaps another farm. Stop it, or choose another "
            "port with --port; --port 0 takes a free port",
            code="port-taken",
        )
    if isinstance(error, socket.gaierror):
        return InvalidInputError(
            f"--host {host} is unknown: no address belongs to this name. Choose an address of this machine: 127.0.0.1 serves "
            "only this machine, 0.0.0.0 all its networks",
            code="not-own-address",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return InvalidInputError(
            f"--host {host} is not an address of this machine. Choose an address of this machine: 127.0.0.1 serves only this machine, "
            "0.0.0.0 all its networks",
            code="not-own-address",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return InvalidInputError(
            f"this user may not listen on port {port}: ports below 1024 need root. Choose a higher port with --port, like 8000",
            code="port-not-allowed",
        )
    return TransientError(f"cannot listen on port {port} of {host}: {error.strerror}", code="cannot-listen")
