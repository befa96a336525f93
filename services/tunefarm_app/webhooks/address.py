"""Check the addresses that a webhook may use: none in the farm's own network (server-side request forgery).

A request is refused by the addresses that its host resolves to, however it is spelt: ``127.1``, ``0x7f000001`` and DNS
names all go through the resolver. The connection uses the very addresses that were checked, so a name that resolves
differently a moment later gains nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import structlog

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

MAX_URL_LENGTH = 2000

Resolver = Callable[[str, int], tuple[str, ...]]
"""Host and port to addresses; raises `OSError`."""

_METADATA = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # most clouds
            "169.254.170.2",  # containers of AWS
            "169.254.170.23",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",  # Google
            "100.100.100.200",  # Alibaba
            "192.0.0.192",  # Oracle
            "168.63.129.16",  # Azure: a public address that only its own machines reach
        ),
    )
)
_CARRIERS = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Networks whose addresses end with an IPv4 address in 32 bits: compatible, mapped, translated, NAT64."""
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
"""NAT64 of a network's own (RFC 8215): the IPv4 address is in one of five places (RFC 6052), and only that network knows where."""
_ISATAP = 0x5EFE
_NOT_PUBLIC = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""Private ranges that some versions of Python treat as public."""
_NEVER = "that webhooks may not use: link-local, multicast, a local NAT64, or a cloud's metadata service"
_OTHER_SERVICES_BELOW = 1024
_WEB_PORTS = frozenset({80, 443})


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """The receiver in a webhook's URL.

    Attributes:
        path: With the query.
    """

    tls: bool
    host: str
    port: int
    path: str


def parse_url(url: str) -> Receiver:
    """Parse a webhook's URL.

    Raises:
        InvalidInputError: ``webhook-url`` if nothing can be sent to it.
    """
    if len(url) > MAX_URL_LENGTH:
        raise _bad_url(f"it is longer than {MAX_URL_LENGTH} characters")
    if not all("!" <= c <= "~" and c != "\\" for c in url):
        raise _bad_url(
            "it has characters that are not allowed in a URL; write international names in Punycode"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _bad_url(clean(str(error))) from error
    if parts.scheme not in ("http", "https"):
        raise _bad_url("it must begin with https:// or http://")
    if not parts.hostname:
        raise _bad_url("it has no host")
    if "@" in parts.netloc:
        raise _bad_url("it must not have a user or a password, because the signature identifies the sender")
    if "#" in url:
        raise _bad_url("it must not have a fragment (#), because a fragment is never sent")
    if port == 0:
        raise _bad_url("its port is invalid")
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Receiver(tls=tls, host=parts.hostname, port=port or (443 if tls else 80), path=path)


def _bad_url(why: str) -> InvalidInputError:
    return InvalidInputError(f"the URL is invalid for a webhook: {why}", code="webhook-url")


def system_resolver(host: str, port: int) -> tuple[str, ...]:
    """Ask the system's resolver, which also reads every spelling of an address."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in answers))


def checked_addresses(
    receiver: Receiver, *, allow_private: bool, resolve: Resolver = system_resolver
) -> tuple[str, ...]:
    """Resolve the host once; return its addresses if all are allowed. Private ones need `allow_private`.

    Raises:
        InvalidInputError: ``webhook-address`` if there is no address, one of them is not allowed, or the port belongs
            to another service, such as mail.
    """
    if receiver.port < _OTHER_SERVICES_BELOW and receiver.port not in _WEB_PORTS and not allow_private:
        raise _bad_address(
            f"the port {receiver.port} belongs to another service: below 1024, only 443 and 80 are allowed"
        )
    try:
        addresses = resolve(receiver.host, receiver.port)
    except (OSError, UnicodeError) as error:
        raise _bad_address(f"the host {clean(receiver.host)} is unknown") from error
    if not addresses:
        raise _bad_address(f"the host {clean(receiver.host)} has no address")
    for address in addresses:
        if not _is_allowed(address, allow_private=allow_private):
            # Which one is not told: names of the farm's own network are not for whoever may register a webhook.
            log.info("webhook address refused", host=clean(receiver.host), address=clean(address))
            why = (
                _NEVER
                if allow_private
                else "that is not public (TUNEFARM_WEBHOOK_ALLOW_PRIVATE=true allows it)"
            )
            raise _bad_address(f"the host {clean(receiver.host)} has an address {why}")
    return addresses


def _bad_address(why: str) -> InvalidInputError:
    return InvalidInputError(why, code="webhook-address")


def _is_allowed(text: str, *, allow_private: bool) -> bool:
    try:
        address = _carried_ipv4(ip_address(text.partition("%")[0]))
    except ValueError:
        return False
    if address in _METADATA or address in _LOCAL_NAT64 or address.is_multicast or address.is_link_local:
        return False
    return allow_private or _is_public(address)


def _carried_ipv4(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address inside an IPv6 address if there is one, else the address itself."""
    if isinstance(address, IPv4Address) or address.is_loopback or address.is_unspecified:
        return address
    is_isatap = (int(address) >> 32) & 0xFDFFFFFF == _ISATAP  # the bit left out says whether it is unique
    if is_isatap or any(address in network for network in _CARRIERS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour or (address.teredo[1] if address.teredo else address)


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address.is_site_local:
        return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    # Python counts some reserved IPv6 ranges as global.
    return address.is_global and not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_reserved
        or address.is_unspecified
    )
