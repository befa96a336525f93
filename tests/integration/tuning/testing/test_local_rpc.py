"""A local RPC server is waited for as long as the caller says."""

from __future__ import annotations

import pytest

from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.testing.local_rpc import local_rpc


def test_a_server_that_does_not_come_up_is_waited_for_as_long_as_the_caller_says() -> None:
    with (
        pytest.raises(TransientError, match="the server did not come up"),
        local_rpc(server_command=["sleep", "600"], ready_timeout_sec=0.2),
    ):
        raise AssertionError("there is no server")
