"""When an RPC server counts as alive, and when it is given up."""

from __future__ import annotations

import pytest

from tunefarm_workers.device.rpc.liveness import Liveness


def judge() -> Liveness:
    return Liveness(100.0, hello_patience_sec=5, start_patience_sec=60)


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
    for hello, connected, proven in [(True, True, True), (True, False, False), (False, True, False)]:
        liveness.observe(101.0, hello=hello, connected=connected)
        assert liveness.proven is proven


def test_a_gateway_that_is_away_is_not_the_servers_fault() -> None:
    liveness = judge()
    liveness.began_to_listen(100.0)
    for now in range(101, 1000):
        liveness.observe(now, hello=True, connected=False)
        assert liveness.verdict(now) is None


@pytest.mark.parametrize("connected", [True, False])
def test_a_missing_answer_ends_the_patience(connected: bool) -> None:
    liveness = judge()
    liveness.began_to_listen(100.0)
    for now in range(101, 106):
        liveness.observe(now, hello=False, connected=connected)
        assert liveness.verdict(now) is None
    assert liveness.verdict(105.5) is not None


def test_listening_again_does_not_renew_the_patience() -> None:
    liveness = judge()
    liveness.began_to_listen(100.0)
    liveness.began_to_listen(104.0)
    assert liveness.verdict(105.5) is not None
