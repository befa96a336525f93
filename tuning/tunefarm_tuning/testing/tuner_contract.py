"""The contract test of tuners: a test for each sentence of `Tuner`'s docstring.

Derive a test class from `TunerContract` and say how to make the tuner::

    class TestMyTuner(TunerContract):
        def make(self, space, seed):
            return MyTuner(space, seed=seed)
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Failure
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.testing.synthetic import conv_space, synthetic_task, tiny_space
from tunefarm_tuning.tuner.base import TrialResult, Tuner

_TASK = synthetic_task()


def answers(configs: list[Config], landscape: SyntheticLandscape) -> list[TrialResult]:
    """Return a landscape's measurements of configs."""
    results = []
    for config in configs:
        answer = landscape(_TASK, config)
        if isinstance(answer, Failure):
            results.append(TrialResult(asked=config, config=config, outcome=answer.outcome))
        else:
            results.append(TrialResult(asked=config, config=config, outcome=Outcome.OK, cost_sec=answer[0]))
    return results


class TunerContract(ABC):
    """Conformance suite of `Tuner` (pytest collects its subclasses)."""

    rounds = 5

    @abstractmethod
    def make(self, space: ConfigSpace, seed: int) -> Tuner:
        """Return a new tuner."""

    def _run(self, seed: int, *, failing: float = 0.2) -> tuple[Tuner, list[list[Config]], list[TrialResult]]:
        space = conv_space()
        landscape = SyntheticLandscape(space, seed=3, failing=failing)
        tuner = self.make(space, seed)
        batches, results_told = [], []
        for _ in range(self.rounds):
            batches.append(tuner.ask(8))
            results = answers(batches[-1], landscape)
            tuner.tell(results)
            results_told += results
        return tuner, batches, results_told

    def test_asks_for_as_many_as_wanted_and_none_twice(self) -> None:
        tuner, batches, _ = self._run(seed=0)
        assert [len(batch) for batch in batches] == [8] * self.rounds
        keys = [config.key for batch in batches for config in batch]
        assert len(set(keys)) == len(keys)
        assert all(tuner.space.contains(config) for batch in batches for config in batch)
        assert tuner.ask(0) == []

    def test_asking_again_before_telling_gives_others(self) -> None:
        tuner = self.make(conv_space(), 0)
        keys = [config.key for _ in range(4) for config in tuner.ask(8)]
        assert len(set(keys)) == len(keys) == 32

    def test_equal_seed_and_results_give_equal_proposals(self) -> None:
        assert self._run(seed=5)[1] == self._run(seed=5)[1]

    def test_a_tuner_rebuilt_from_results_goes_on_where_the_old_one_was(self) -> None:
        old, _, results = self._run(seed=2)
        new = self.make(conv_space(), 2)
        new.tell(results)
        assert new.ask(8) == old.ask(8)

    def test_a_small_space_is_searched_to_the_end_and_then_spent(self) -> None:
        space = tiny_space()
        tuner = self.make(space, 0)
        configs: list[Config] = []
        while batch := tuner.ask(5):
            configs += batch
            tuner.tell(answers(batch, SyntheticLandscape(space)))
        assert sorted(space.index_of(config) for config in configs) == list(range(space.size))
        assert tuner.ask(1) == []

    def test_what_a_config_became_is_not_proposed(self) -> None:
        """Half of the configs become other configs when applied."""
        space = tiny_space()
        tuner = self.make(space, 0)
        applied: set[str] = set()
        while batch := tuner.ask(3):
            assert applied.isdisjoint(config.key for config in batch)
            became = [space.config_at(space.index_of(config) // 2 * 2) for config in batch]
            applied |= {config.key for config in became}
            tuner.tell(
                [
                    TrialResult(asked=a, config=b, outcome=Outcome.OK, cost_sec=1.0)
                    for a, b in zip(batch, became, strict=True)
                ]
            )

    def test_configs_it_never_proposed_are_taken_in(self) -> None:
        """Of other spaces too: a location that no sketch lists, a sketch that is not there."""
        space = conv_space()
        tuner = self.make(space, 0)
        odd = space.config_at(12345)
        results = answers([space.config_at(i * 999) for i in range(20)], SyntheticLandscape(space))
        for config in (Config(0, (*odd.decisions[:-1], 77)), Config(9, ()), Config(0, (1,))):
            results.append(TrialResult(asked=odd, config=config, outcome=Outcome.OK, cost_sec=1e-6))
        tuner.tell(results)
        proposed = {config.key for _ in range(3) for config in tuner.ask(8)}
        assert proposed.isdisjoint({r.config.key for r in results} | {r.asked.key for r in results})
        assert tuner.result_of(results[0].config) == results[0]
        assert tuner.result_of(space.config_at(1)) is None

    def test_an_infrastructure_error_is_not_the_configs_fault(self) -> None:
        space = tiny_space()
        tuner = self.make(space, 0)
        lost = tuner.ask(4)
        tuner.tell([TrialResult(asked=c, config=c, outcome=Outcome.INFRASTRUCTURE_ERROR) for c in lost])
        assert tuner.result_of(lost[0]) is None
        configs: list[Config] = []
        while batch := tuner.ask(5):
            configs += batch
            tuner.tell(answers(batch, SyntheticLandscape(space)))
        assert len(configs) == space.size
        assert {config.key for config in lost} <= {config.key for config in configs}

    def test_what_is_set_aside_is_not_proposed(self) -> None:
        space = tiny_space()
        tuner = self.make(space, 0)
        lost = tuner.ask(4)
        tuner.tell([TrialResult(asked=c, config=c, outcome=Outcome.INFRASTRUCTURE_ERROR) for c in lost])
        tuner.set_aside(lost[:2])
        configs: list[Config] = []
        while batch := tuner.ask(5):
            configs += batch
            tuner.tell(answers(batch, SyntheticLandscape(space)))
        assert len(configs) == space.size - 2
        assert {config.key for config in configs}.isdisjoint(config.key for config in lost[:2])
        assert tuner.result_of(lost[0]) is None

    def test_nothing_but_failures_does_not_stop_it(self) -> None:
        space = conv_space()
        tuner = self.make(space, 0)
        for _ in range(self.rounds):
            batch = tuner.ask(8)
            assert len(batch) == 8
            tuner.tell(answers(batch, SyntheticLandscape(space, failing=1.0)))

    def test_history_counts_as_not_yet_tried(self) -> None:
        space = tiny_space()
        tuner = self.make(space, 0)
        tuner.load_history([history(space, [space.config_at(i) for i in range(space.size)])])
        configs: list[Config] = []
        while batch := tuner.ask(5):
            configs += batch
            tuner.tell(answers(batch, SyntheticLandscape(space)))
        assert len(configs) == space.size


def history(space: ConfigSpace, configs: list[Config], *, seed: int = 0) -> TaskHistory:
    """Return records of configs as another device would have measured them."""
    landscape = SyntheticLandscape(space, seed=seed)
    records = tuple(
        TuningRecord(
            workload_key=_TASK.workload.key,
            target_key=_TASK.target.key,
            device_model="another",
            toolchain="tvm-0",
            space_key=space.key,
            config=config,
            outcome=Outcome.OK,
            samples_sec=(2 * landscape.cost_sec(config),),
            build_sec=0.1,
            measured_at=float(number),
        )
        for number, config in enumerate(configs)
    )
    return TaskHistory(space=space, records=records)
