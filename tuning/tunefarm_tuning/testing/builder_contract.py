"""The contract test of builders: a test for each sentence of `Builder`'s docstring.

Derive a test class from `BuilderContract` and say how to make the builder and a task for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Builder, BuildInput
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask


class BuilderContract(ABC):
    """Conformance suite of `Builder` (pytest collects its subclasses)."""

    @abstractmethod
    def make(self) -> Builder:
        """Return a new builder."""

    @abstractmethod
    def task(self) -> TuningTask:
        """Return a task with at least ten configs."""

    def _inputs(self, builder: Builder, n: int) -> list[BuildInput]:
        task = self.task()
        configs = builder.config_space(task).sample(np.random.default_rng(0), n)
        return [BuildInput(task=task, config=config) for config in configs]

    def test_the_config_space_is_the_same_every_time(self) -> None:
        first, second = self.make(), self.make()
        try:
            space = first.config_space(self.task())
            assert space == first.config_space(self.task()) == second.config_space(self.task())
            assert space.size >= 10
        finally:
            first.close()
            second.close()

    def test_one_result_per_input_in_order(self) -> None:
        builder = self.make()
        try:
            assert builder.build([]) == []
            inputs = self._inputs(builder, 5)
            results = builder.build(inputs)
            assert [result.config.sketch for result in results] == [
                build_input.config.sketch for build_input in inputs
            ]
            assert all(0 <= result.apply_sec <= result.build_sec for result in results)
            paths = [result.artifact_path for result in results]
            assert all(path is not None and path.is_file() for path in paths)
            assert len(set(paths)) == len(paths)
        finally:
            builder.close()

    def test_results_come_one_by_one_too(self) -> None:
        builder = self.make()
        try:
            assert list(builder.build_each([])) == []
            inputs = self._inputs(builder, 4)
            results = dict(builder.build_each(inputs))
            assert sorted(results) == [0, 1, 2, 3]
            assert [results[i].config for i in range(4)] == [r.config for r in builder.build(inputs)]
            for _, result in builder.build_each(inputs):
                assert result.artifact_path is not None
                break  # leaving early is allowed
            assert all(result.failure is None for result in builder.build(inputs))
        finally:
            builder.close()

    def test_two_batches_can_be_under_way(self) -> None:
        builder = self.make()
        try:
            inputs = self._inputs(builder, 4)
            first, second = builder.build_each(inputs[:2]), builder.build_each(inputs[2:])
            late, early = dict(second), dict(first)
            assert sorted(early) == sorted(late) == [0, 1]
            results = [early[0], early[1], late[0], late[1]]
            assert [result.config for result in results] == [
                result.config for result in builder.build(inputs)
            ]
            assert len({result.artifact_path for result in results}) == 4
        finally:
            builder.close()

    def test_a_batch_that_is_closed_leaves_nothing_and_others_alone(self) -> None:
        builder = self.make()
        try:
            inputs = self._inputs(builder, 6)
            first, second = builder.build_each(inputs[:3]), builder.build_each(inputs[3:])
            _, kept = next(first)
            assert kept.artifact_path is not None
            first.close()
            first.close()
            assert list(first) == []
            assert len(dict(second)) == 3
            second.close()
            kernels = list(kept.artifact_path.parent.glob(f"*{kept.artifact_path.suffix}"))
            assert kept.artifact_path in kernels
            assert len(kernels) == 4
        finally:
            builder.close()

    def test_the_same_config_twice_gives_two_artifacts(self) -> None:
        builder = self.make()
        try:
            first, second = builder.build(self._inputs(builder, 1) * 2)
            assert first.config == second.config
            assert first.artifact_path is not None
            assert second.artifact_path is not None
            first.artifact_path.unlink()
            assert second.artifact_path.is_file()
        finally:
            builder.close()

    def test_a_config_as_applied_is_applied_as_it_is(self) -> None:
        builder = self.make()
        try:
            inputs = self._inputs(builder, 5)
            applied = [result.config for result in builder.build(inputs)]
            again = builder.build([BuildInput(task=self.task(), config=config) for config in applied])
            assert [result.config for result in again] == applied
        finally:
            builder.close()

    def test_a_bad_candidate_is_a_result_and_the_rest_is_built(self) -> None:
        builder = self.make()
        try:
            inputs = self._inputs(builder, 3)
            inputs[1] = BuildInput(task=self.task(), config=Config(99, ()))
            first, bad, last = builder.build(inputs)
            assert bad.failure is not None
            assert bad.failure.outcome is Outcome.INSTANTIATION_ERROR
            assert bad.failure.message
            assert bad.artifact_path is None
            assert bad.config == inputs[1].config
            assert first.failure is None
            assert last.failure is None
            assert builder.build(inputs[:1])[0].failure is None
        finally:
            builder.close()

    def test_artifacts_belong_to_the_caller_until_the_builder_closes(self) -> None:
        builder = self.make()
        try:
            inputs = self._inputs(builder, 4)
            paths = [result.artifact_path for result in builder.build(inputs[:2])]
            builder.build(inputs[2:])
            assert all(path is not None and path.is_file() for path in paths)
            assert paths[0] is not None
            paths[0].unlink()
            builder.build(inputs[:1])
        finally:
            builder.close()
        assert not any(path.exists() for path in paths if path is not None)
        builder.close()
