"""The calibration's child: a device's timer may say anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import tvm

from tunefarm_tuning.tvm.children import calibrate
from tunefarm_tuning.tvm.device.session import local_session


@dataclass
class Timed:
    results: list[float]


@dataclass
class Module:
    """A kernel on a device that computes rightly, and says what it likes of its time."""

    says: dict[str, float] = field(default_factory=dict)

    def time_evaluator(self, name: str, *_: object, **__: object) -> Callable[..., Timed]:
        return lambda *_: Timed([self.says.get(name, 1e-3)] * 2)

    def __getitem__(self, name: str) -> Callable[..., None]:
        return lambda *args: args[-1].copyfrom(np.zeros(args[-1].shape, "float32"))


def wrong_of(module: Module) -> str | None:
    left, right = calibrate.operands(calibrate.SIZE["cpu"])
    arrays = [tvm.runtime.tensor(array) for array in (left, right, left @ right)]
    loaded = calibrate._Loaded(local_session(), "cpu", tvm.cpu(), module, arrays, None)
    wrong: str | None = calibrate._run(loaded, 2, 1e-3)["wrong"]
    return wrong


def test_a_time_that_can_be_is_right() -> None:
    assert wrong_of(Module()) is None


@pytest.mark.parametrize("kernel", ["main", "all_cores"])
@pytest.mark.parametrize("says_sec", [-1e-3, float("nan"), float("inf"), 0.0])
def test_a_time_that_cannot_be_is_a_wrong_answer(kernel: str, says_sec: float) -> None:
    wrong = wrong_of(Module({kernel: says_sec}))
    assert wrong is not None
    assert "timer" in wrong
