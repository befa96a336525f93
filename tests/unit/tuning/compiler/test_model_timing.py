"""Whether a tuned network is slower than the untuned one, or the difference is noise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from tunefarm_tuning.compiler.model_timing import is_slower, time_models
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.device_run import DeviceRun

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


class Networks:
    """Stands in for a device: each network's samples go round in a list.

    Attributes:
        timed: Samples that were taken, by the library's name.
    """

    def __init__(self, **sec: list[float]) -> None:
        self._sec = sec
        self.timed: Counter[str] = Counter()

    def call(self, method: str, params: dict[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        assert timeout_sec > 0
        if method == "reference_loop":
            return {"loop_sec": None}
        name = Path(params["path"]).stem
        samples = self._sec[name]
        sec = samples[self.timed[name] % len(samples)]
        self.timed[name] += 1
        return {"samples_sec": [sec], "watched": None}


@pytest.mark.parametrize(
    ("without", "blocks"),
    [
        ([0.0120, 0.0121], 5),  # clearly slower without it
        ([0.0080, 0.0081], 5),  # clearly faster
        ([0.0090, 0.0092, 0.0089, 0.0108, 0.0107, 0.0110], 15),  # on both sides of the ratio that decides
    ],
)
def test_few_blocks_decide_a_clear_difference(without: list[float], blocks: int) -> None:
    networks = Networks(best=[0.0100, 0.0101], without=without)
    time_models(
        cast("DeviceRun", networks),
        {"with": Path("best.so"), "without": Path("without.so")},
        None,
        Path("inputs.npz"),
        threads=1,
        limits=CompileLimits(),
        on_round=lambda _: None,
        decide=0.99,
    )
    assert networks.timed == {"best": blocks + 1, "without": blocks + 1}, "and a first inference"
