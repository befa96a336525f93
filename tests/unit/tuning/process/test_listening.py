"""An address that cannot be listened on is named, with what to do."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TransientError
from tunefarm_tuning.process.listening import cannot_listen, listen


def test_a_free_port_is_taken_and_then_it_is_not_free() -> None:
    with listen("127.0.0.1", 0, backlog=1) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConflictError, match=f"port {port} of 127.0.0.1 is taken.*--port") as caught:
            listen("127.0.0.1", port, backlog=1)
        assert caught.value.code == "port-taken"
    listen("127.0.0.1", port, backlog=1).close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b", "a" * 64])
def test_a_host_that_is_not_this_machine(host: str) -> None:
    with pytest.raises(
        InvalidInputError, match=f"--host {host}.*127.0.0.1 serves only this machine"
    ) as caught:
        listen(host, 0, backlog=1)
    assert caught.value.code == "not-own-address"


def test_no_host_means_all_networks() -> None:
    with listen("", 0, backlog=1) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


def test_a_port_of_the_system_and_what_nobody_foresaw() -> None:
    refused = cannot_listen("127.0.0.1", 80, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    assert (type(refused), refused.code) == (InvalidInputError, "port-not-allowed")
    assert "port 80: ports below 1024 need root" in refused.message
    other = cannot_listen("127.0.0.1", 80, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    assert (type(other), other.code) == (TransientError, "cannot-listen")
    assert other.message == "cannot listen on port 80 of 127.0.0.1: Too many open files"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_the_same_for_ipv6() -> None:
    with pytest.raises(InvalidInputError, match="--host 2001:db8::1"):
        listen("2001:db8::1", 0, backlog=1)
