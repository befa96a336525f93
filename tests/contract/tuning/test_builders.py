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

    # Each of these starts compilers of its own. The replay builder is held to them always.
    @pytest.mark.exhaustive
    def test_two_batches_can_be_under_way(self) -> None:
        super().test_two_batches_can_be_under_way()

    @pytest.mark.exhaustive
    def test_the_same_config_twice_gives_two_artifacts(self) -> None:
        super().test_the_same_config_twice_gives_two_artifacts()

    @pytest.mark.exhaustive
    def test_results_come_one_by_one_too(self) -> None:
        super().test_results_come_one_by_one_too()

    @pytest.mark.exhaustive
    def test_the_config_space_is_the_same_every_time(self) -> None:
        super().test_the_config_space_is_the_same_every_time()


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
