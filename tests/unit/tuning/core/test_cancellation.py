"""Cancelling closes every attached resource."""

from __future__ import annotations

from tunefarm_tuning.core.cancellation import Cancellation


class Door:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_cancel_closes_what_is_attached_now_and_later() -> None:
    cancellation = Cancellation()
    now, earlier, later = Door(), Door(), Door()
    with cancellation.attach(earlier):
        pass
    with cancellation.attach(now):
        assert now.closed == 0
        cancellation.cancel()
        cancellation.cancel()
    assert cancellation.cancelled
    with cancellation.attach(later):
        assert later.closed == 1
    assert (now.closed, earlier.closed) == (1, 0)
