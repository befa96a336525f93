"""Which lease gives way at a device, by its fence."""

from __future__ import annotations

from tunefarm_workers.device.hardened_server.fences import MEMORY_SEC, Fences


def test_an_earlier_lease_is_refused_once_a_later_was_heard_of() -> None:
    fences = Fences()
    assert fences.let_in(5, 0.0)
    assert fences.let_in(5, 1.0)
    assert not fences.let_in(4, 1.0)
    assert fences.let_in(6, 2.0)
    assert not fences.let_in(5, 3.0)
    assert fences.let_in(None, 3.0), "who names no lease is taken as it comes"


def test_a_claim_ends_an_earlier_leases_session_only() -> None:
    fences = Fences()
    assert not fences.claim(5, 0.0), "there is none"
    fences.let_in(5, 0.0)
    fences.began(5)
    assert not fences.claim(5, 1.0), "it is one's own"
    assert not fences.claim(4, 1.0)
    assert not fences.claim(None, 1.0)
    assert fences.claim(6, 1.0)
    fences.ended(1.0)
    assert not fences.claim(7, 2.0)
    fences.began(None)
    assert not fences.claim(8, 3.0), "of a client without a lease nobody knows"


def test_what_was_heard_is_forgotten() -> None:
    """A farm that was restored from a backup goes on with smaller numbers."""
    fences = Fences()
    fences.let_in(900, 0.0)
    fences.began(900)
    assert not fences.let_in(5, 10 * MEMORY_SEC), "it is at work"
    fences.ended(10 * MEMORY_SEC)
    assert not fences.let_in(5, 11 * MEMORY_SEC)
    assert fences.let_in(5, 11 * MEMORY_SEC + 1.0)
    fences.began(5)
    assert not fences.let_in(4, 11 * MEMORY_SEC + 2.0)
