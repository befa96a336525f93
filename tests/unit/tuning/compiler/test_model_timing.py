"""Whether a tuned network is slower than the untuned one, or the difference is noise."""

from __future__ import annotations

import pytest

from tunefarm_tuning.compiler.model_timing import is_slower
from tunefarm_tuning.core.latency import Latency

QUIET = [1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99, 1.0]
BUSY = [1.0, 1.0, 1.0, 1.6, 2.0, 2.1, 1.9, 2.3]


@pytest.mark.parametrize(
    ("tuned", "untuned", "slower"),
    [
        (QUIET, QUIET, False),
        ([0.5] * 8, QUIET, False),
        ([2.0] * 8, QUIET, True),
        (BUSY, QUIET, None),  # at its best it is as fast
        (QUIET, BUSY, False),
        ([2.0 * sec for sec in BUSY], BUSY, True),
        ([2.0] * 4, QUIET, None),  # a few samples reject nothing
        ([2.0] * 8, [1.0], None),
    ],
)
def test_slower(tuned: list[float], untuned: list[float], slower: bool | None) -> None:
    assert is_slower(Latency.of(tuned, 1), Latency.of(untuned, 1), 1.02) is slower
