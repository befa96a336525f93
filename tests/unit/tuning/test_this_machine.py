"""Which addresses are this machine's own."""

from __future__ import annotations

from tunefarm_tuning.runner.this_machine import is_this_machine


def test_loopback_is_this_machine_and_a_far_address_is_not() -> None:
    assert is_this_machine("127.0.0.1")
    assert is_this_machine("localhost")
    assert not is_this_machine("192.0.2.1")  # reserved for documents
    assert is_this_machine("no-such-host.invalid")  # nobody can tell
