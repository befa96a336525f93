"""What a session that cannot be opened says."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tunefarm_tuning.tvm.device.session import why_not_opened


def test_the_end_of_a_session_is_told_in_plain_words() -> None:
    ended = RuntimeError("Check failed: (code == RPCCode::kReturn) is false: code=1")
    assert why_not_opened(ended) == "it ended the session before it answered"
    assert why_not_opened(RuntimeError("Connection refused")) == "Connection refused"
