"""Which tickets open a session."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_app.identity.tickets import Ticket
from tunefarm_workers.gateway.admissions import AHEAD_SEC, MEMORY_SEC, Admissions, RefusedError

NOW = 1000.0
TICKET = Ticket(device="dev_1/k", fence=7, id="a", key="k", issued_at=NOW, expires_at=NOW + 60.0)


def admissions() -> Admissions:
    return Admissions(NOW - 100.0)


def test_a_ticket_is_valid_once() -> None:
    memory = admissions()
    memory.admit(TICKET, NOW)
    for later in (NOW, NOW + 59.0):
        with pytest.raises(RefusedError, match="used already"):
            memory.admit(TICKET, later)
    with pytest.raises(RefusedError, match="expired"):
        memory.admit(TICKET, NOW + 61.0)
    memory.admit(replace(TICKET, id="b"), NOW + 1.0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"expires_at": NOW}, "expired"),
        ({"expires_at": NOW + MEMORY_SEC + 1.0}, "for too long"),
        ({"issued_at": NOW - 101.0}, "older than the gateway"),
        ({"issued_at": NOW + AHEAD_SEC + 1.0}, "from the future"),
    ],
)
def test_a_ticket_has_its_time(changes: dict[str, float], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        admissions().admit(replace(TICKET, **changes), NOW)


def test_an_earlier_lease_is_over() -> None:
    memory = admissions()
    memory.admit(TICKET, NOW)
    memory.admit(replace(TICKET, id="b", fence=8), NOW)
    with pytest.raises(RefusedError, match="the lease 7 is over"):
        memory.admit(replace(TICKET, id="c"), NOW)
    memory.admit(replace(TICKET, id="c", device="dev_2/k"), NOW)
    memory.admit(replace(TICKET, id="d", fence=8), NOW)


def test_a_restored_farm_counts_from_an_earlier_lease() -> None:
    memory = admissions()
    memory.admit(replace(TICKET, fence=99), NOW)
    later = NOW + MEMORY_SEC + 1.0
    memory.admit(replace(TICKET, id="b", fence=3, issued_at=later, expires_at=later + 60.0), later)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.floats(0.0, 60.0)), max_size=40))
def test_no_ticket_opens_two_sessions_and_no_lease_comes_back(uses: list[tuple[int, int, float]]) -> None:
    """Tickets of one device that are used in any order, within the time that is remembered."""
    memory, now, admitted = admissions(), NOW, []
    for number, fence, pause in uses:
        now += pause
        ticket = replace(TICKET, id=f"{number}-{fence}", fence=fence, expires_at=now + 60.0)
        try:
            memory.admit(ticket, now)
        except RefusedError:
            continue
        admitted.append((now, ticket))
    for (earlier, first), (later, second) in pairwise(admitted):
        assert second.fence >= first.fence or later - earlier > MEMORY_SEC
    for index, (_, first) in enumerate(admitted):
        again = [at for at, ticket in admitted[index + 1 :] if ticket.id == first.id]
        assert not [at for at in again if at < first.expires_at]
