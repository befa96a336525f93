"""Which addresses are this machine's own."""

from __future__ import annotations

from tunefarm_tuning.process.device_address import is_own_address


def test_loopback_is_this_machine_and_a_far_address_is_not() -> None:
    assert is_own_address("127.0.0.1")
    assert is_own_address("localhost")
    assert not is_own_address("192.0.2.1")  # reserved for documents
    assert is_own_address("no-such-host.invalid")  # nobody can tell
