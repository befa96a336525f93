"""Every shipped tuner that needs no TVM keeps the tuner contract; tests/integration has the other one."""

from __future__ import annotations

from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.testing.synthetic import synthetic_task
from tunefarm_tuning.testing.tuner_contract import TunerContract
from tunefarm_tuning.tuner import Tuner, make_tuner


class TestRandomTuner(TunerContract):
    def make(self, space: ConfigSpace, seed: int) -> Tuner:
        return make_tuner("random", synthetic_task(), space, seed=seed)


class TestGridSearchTuner(TunerContract):
    def make(self, space: ConfigSpace, seed: int) -> Tuner:
        return make_tuner("grid", synthetic_task(), space, seed=seed)


class TestGATuner(TunerContract):
    def make(self, space: ConfigSpace, seed: int) -> Tuner:
        return make_tuner("ga", synthetic_task(), space, seed=seed)


class TestXGBTuner(TunerContract):
    def make(self, space: ConfigSpace, seed: int) -> Tuner:
        return make_tuner("xgb", synthetic_task(), space, seed=seed)
