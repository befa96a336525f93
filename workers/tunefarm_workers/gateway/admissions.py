"""Which tickets open a session: each once, in its time, and of each device only those of its newest lease. Pure."""

from __future__ import annotations

from tunefarm_app.identity.tickets import Ticket

MEMORY_SEC = 120.0
"""How long an earlier lease is refused after the last ticket of a later one, and the longest that a ticket may be valid. Not for ever, because
a farm restored from a backup numbers its leases from there."""

AHEAD_SEC = 5.0
"""How far a worker's clock may be ahead of the gateway's."""


class RefusedError(Exception):
    """A session is refused; the message says why."""


class Admissions:
    """Remembers the tickets that were used, and each device's newest lease.

    Args:
        started_at: When this memory began (Unix seconds): nobody knows which earlier tickets were used.
    """

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._used: dict[str, float] = {}  # until when, by the ticket's id
        self._newest: dict[str, tuple[int, float]] = {}  # the fence, and when it was heard of, by the device

    def admit(self, ticket: Ticket, now: float) -> None:
        """Use up a ticket.

        Args:
            ticket: A ticket whose signature was checked.
            now: Unix seconds.

        Raises:
            RefusedError: If it opens no session.
        """
        self._forget(now)
        if ticket.expires_at <= now:
            raise RefusedError("the ticket has expired")
        if ticket.expires_at > now + MEMORY_SEC:
            raise RefusedError("the ticket is valid for too long: do the clocks differ?")
        if ticket.issued_at > now + AHEAD_SEC:  # after a restart, nobody would know that it was used
            raise RefusedError("the ticket is from the future: do the clocks differ?")
        if ticket.issued_at < self._started_at:
            raise RefusedError("the ticket is older than the gateway")
        if ticket.id in self._used:
            raise RefusedError("the ticket was used already")
        newest, _ = self._newest.get(ticket.device, (ticket.fence, now))
        if ticket.fence < newest:
            raise RefusedError(f"the lease {ticket.fence} is over: the device is leased under {newest}")
        self._used[ticket.id] = ticket.expires_at
        self._newest[ticket.device] = (ticket.fence, now)

    def _forget(self, now: float) -> None:
        self._used = {used: until for used, until in self._used.items() if until > now}
        self._newest = {
            device: (fence, heard)
            for device, (fence, heard) in self._newest.items()
            if now - heard <= MEMORY_SEC
        }
