"""When an RPC server counts as alive, and when it is given up."""

from __future__ import annotations

import pytest

from tunefarm_workers.device.rpc.liveness import Liveness


def judge() -> Liveness:
    return Liveness(100.0, hello_patience_sec=5, listing_patience_sec=10, start_patience_sec=60)


def test_a_server_has_time_to_start() -> None:
    liveness = judge()
    assert liveness.verdict(160.0) is None
    assert "did not listen within 60 s" in str(liveness.verdict(160.1))


def test_the_patience_begins_when_it_listens() -> None:
    liveness = judge()
    liveness.began_to_listen(150.0)
    assert liveness.verdict(155.0) is None
    assert "has not answered for 6 s" in str(liveness.verdict(156.0))


def test_it_is_proven_only_by_both() -> None:
    liveness = judge()
    liveness.began_to_listen(100.0)
    for hello, listed, proven in [
        (True, True, True),
        (True, False, False),
        (True, None, False),
        (False, True, False),
    ]:
        liveness.observe(101.0, hello=hello, listed=listed)
        assert liveness.proven is proven


def test_a_tracker_that_is_away_is_not_the_servers_fault() -> None:
    liveness = judge()
    liveness.began_to_listen(100.0)
    for now in range(101, 1000):
        liveness.observe(now, hello=True, listed=None)
        assert liveness.verdict(now) is None


@pytest.mark.parametrize(
    ("hello", "listed", "last_good"), [(False, None, 105), (True, False, 110), (False, True, 105)]
)
def test_a_missing_proof_ends_the_patience(hello: bool, listed: bool | None, last_good: int) -> None:
    liveness = judge()
    liveness.began_to_listen(100.0)
    for now in range(101, last_good + 1):
        liveness.observe(now, hello=hello, listed=listed)
        assert liveness.verdict(now) is None
    assert liveness.verdict(last_good + 0.5) is not None


def test_listening_again_does_not_renew_the_patience() -> None:
    liveness = judge()
    liveness.began_to_listen(100.0)
    liveness.began_to_listen(104.0)
    assert liveness.verdict(105.5) is not None
