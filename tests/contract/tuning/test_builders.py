"""Every shipped builder keeps the builder contract."""

from __future__ import annotations

import pytest

from tunefarm_tuning.measure.builder import BUILDERS, LocalBuilder, ReplayBuilder
from tunefarm_tuning.measure.interfaces import Builder
from tunefarm_tuning.testing.builder_contract import BuilderContract
from tunefarm_tuning.testing.synthetic import synthetic_task, tiny_space
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.workload.task import TuningTask


class TestLocalBuilder(BuilderContract):
    def make(self) -> Builder:
        return LocalBuilder(workers=2)

    def task(self) -> TuningTask:
        return sample_task("softmax", n=32)


class TestReplayBuilder(BuilderContract):
    def make(self) -> Builder:
        return ReplayBuilder({synthetic_task().workload.key: tiny_space()})

    def task(self) -> TuningTask:
        return synthetic_task()


class TestReplayBuilderInBackground(TestReplayBuilder):
    def make(self) -> Builder:
        return ReplayBuilder({synthetic_task().workload.key: tiny_space()}, workers=2)


def test_a_builder_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="workers"):
        LocalBuilder(workers=-1)


def test_every_builder_has_a_contract_test() -> None:
    assert {"local": TestLocalBuilder, "replay": TestReplayBuilder}.keys() == BUILDERS.keys()
