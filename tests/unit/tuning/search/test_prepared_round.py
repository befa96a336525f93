"""A round that is prepared while another is measured: overlap, leftovers, and the tuner's knowledge."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import wait_until

from tunefarm_tuning.core.errors import InvalidInputError, InvariantError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, Builds, Failure, MeasureOption
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.measure.runner.replay import Answer, ReplayRunner
from tunefarm_tuning.search.round import prepare_round
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.testing.synthetic import conv_space, synthetic_task, tiny_space
from tunefarm_tuning.tuner import Tuner, make_tuner
from tunefarm_tuning.tuner.base import TrialResult
from tunefarm_tuning.tuner.baselines import RandomTuner
from tunefarm_tuning.workload.task import TuningTask

TASK = synthetic_task()
OTHER = synthetic_task("dense")
SPACES = {TASK.workload.key: conv_space(), OTHER.workload.key: conv_space()}
LONG_SEC = 60.0


def steady(task: TuningTask, config: Config) -> tuple[float, ...]:
    return (1e-3,) * 3


def remote(
    tmp_path: Path,
    answer: Answer = steady,
    *,
    fail: Callable[[TuningTask, Config], Failure | None] | None = None,
    apply: Callable[[Config], Config] | None = None,
    workers: int = 0,
) -> MeasureOption:
    """Return a builder here, and a device elsewhere."""
    builder = ReplayBuilder(SPACES, work_dir=tmp_path, fail=fail, apply=apply, workers=workers)
    return MeasureOption(builder=builder, runner=ReplayRunner(answer, shares_host=False))


def tuner_of(task: TuningTask = TASK, name: str = "random") -> Tuner:
    return make_tuner(name, task, SPACES[task.workload.key], seed=3)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    names = ("prepare-round", "build-")
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)],
        "the threads of rounds to end",
    )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("task", [TASK, OTHER], ids=["same-task", "other-task"])
def test_the_next_round_is_built_while_one_is_measured(
    tmp_path: Path, task: TuningTask, workers: int
) -> None:
    built: list[str] = []
    all_built = threading.Event()

    def fail(task: TuningTask, config: Config) -> Failure | None:
        built.append(config.key)
        if len(built) == 8:
            all_built.set()
        return None

    def measure(task: TuningTask, config: Config) -> tuple[float, ...]:
        assert all_built.wait(LONG_SEC), "the next round was not built"
        return (1e-3,)

    option = remote(tmp_path, measure, fail=fail, workers=workers)
    tuner = tuner_of()
    first = prepare_round(tuner, TASK, 4, option)
    second = prepare_round(tuner if task is TASK else tuner_of(task), task, 4, option, after=first)
    outcomes = [*first.measure(), *second.measure()]
    assert [outcome.outcome for outcome in outcomes] == [Outcome.OK] * 8
    assert sorted(built) == sorted(outcome.config.key for outcome in outcomes)
    assert list(tmp_path.iterdir()) == []


def test_on_a_shared_host_nothing_happens_ahead(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Watched(RandomTuner):
        def ask(self, n: int) -> list[Config]:
            sizes.append(n)
            return super().ask(n)

    option = MeasureOption(builder=ReplayBuilder(SPACES, work_dir=tmp_path), runner=ReplayRunner(steady))
    prepared = prepare_round(Watched(SPACES[TASK.workload.key]), TASK, 4, option)
    prepared.wait_begun()
    assert not [thread for thread in threading.enumerate() if thread.name == "prepare-round"]
    assert sizes == []
    assert len(prepared.measure()) == 4
    assert sizes == [4]
    assert prepared.saved_share == 0.0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_discarded_round_leaves_nothing_and_its_configs_may_come_again(
    tmp_path: Path, workers: int
) -> None:
    option = remote(tmp_path, workers=workers)
    tuner = tuner_of()
    prepared = prepare_round(tuner, TASK, 4, option)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 4, "the kernels to be built")
    configs = list(prepared.candidates.configs)
    prepared.discard()
    prepared.discard()
    assert list(tmp_path.iterdir()) == []
    assert tuner.ask(4) == configs
    with pytest.raises(InvariantError):
        prepared.measure()


def test_a_round_can_be_discarded_before_it_was_asked_for(tmp_path: Path) -> None:
    go_on = threading.Event()

    def fail(task: TuningTask, config: Config) -> Failure | None:
        assert go_on.wait(LONG_SEC)
        return None

    option = remote(tmp_path, fail=fail)
    tuner = tuner_of()
    first = prepare_round(tuner, TASK, 4, option)
    second = prepare_round(tuner, TASK, 4, option, after=first)
    discarding = threading.Thread(target=second.discard)
    discarding.start()
    wait_until(second.candidates._stopped.is_set, "the round to be told to stop")
    go_on.set()
    discarding.join()
    assert second.candidates.configs == []
    assert len(first.measure()) == 4
    assert list(tmp_path.iterdir()) == []


def test_what_breaks_in_the_background_is_raised_when_the_round_is_measured(tmp_path: Path) -> None:
    def broken() -> Tuner:
        raise InvalidInputError("cannot be scheduled", code="cannot-be-scheduled")

    prepared = prepare_round(broken, TASK, 4, remote(tmp_path))
    prepared.wait_begun()
    with pytest.raises(InvalidInputError, match="cannot be scheduled"):
        prepared.measure()
    prepare_round(broken, TASK, 4, remote(tmp_path)).discard()


def test_fewer_trials_than_prepared_give_the_rest_back(tmp_path: Path) -> None:
    tuner = tuner_of()
    prepared = prepare_round(tuner, TASK, 8, remote(tmp_path))
    outcomes = prepared.measure(at_most=3)
    assert [outcome.asked for outcome in outcomes] == prepared.candidates.configs[:3]
    assert list(tmp_path.iterdir()) == []
    assert tuner.ask(5) == prepared.candidates.configs[3:]


def test_an_interrupt_while_measuring_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(task: TuningTask, config: Config) -> tuple[float, ...]:
        raise KeyboardInterrupt

    option = remote(tmp_path, interrupt)
    first = prepare_round(tuner_of(), TASK, 4, option)
    second = prepare_round(tuner_of(OTHER), OTHER, 4, option, after=first)
    with pytest.raises(KeyboardInterrupt):
        first.measure()
    second.discard()
    assert list(tmp_path.iterdir()) == []


def test_refused_candidates_are_replaced_ahead(tmp_path: Path) -> None:
    """Replacements are built while another round is measured, too."""
    refused: list[str] = []

    def fail(task: TuningTask, config: Config) -> Failure | None:
        if len(refused) < 7:
            refused.append(config.key)
            return Failure(Outcome.INSTANTIATION_ERROR, "too many threads")
        return None

    prepared = prepare_round(tuner_of(), TASK, 8, remote(tmp_path, fail=fail))
    wait_until(lambda: len(list(tmp_path.iterdir())) == 8, "the others to be built")
    outcomes = prepared.measure()
    assert sum(outcome.is_trial for outcome in outcomes) == 8
    assert sum(outcome.replaced for outcome in outcomes) == 7


def test_what_repeats_the_round_before_is_not_measured_again(tmp_path: Path) -> None:
    """The tuner could not know when it was asked."""
    space = SPACES[TASK.workload.key]
    one_and_only = space.config_at(5)
    option = remote(tmp_path, apply=lambda _: one_and_only)
    tuner = tuner_of()
    first = prepare_round(tuner, TASK, 4, option)
    second = prepare_round(tuner, TASK, 4, option, after=first)
    assert [outcome.config for outcome in first.measure()] == [one_and_only]
    assert second.measure() == ()
    assert list(tmp_path.iterdir()) == []


def dawdle() -> None:
    threading.Event().wait(0.02)


LANDSCAPE = SyntheticLandscape(SPACES[TASK.workload.key], seed=1)


@pytest.mark.parametrize("name", ["random", "ga", "xgb"])
def test_proposals_do_not_depend_on_what_takes_long(tmp_path: Path, name: str) -> None:
    """Slow builds or slow measurements: the same configs in the same order."""

    def search(*, slow_builds: bool) -> list[str]:
        def fail(task: TuningTask, config: Config) -> Failure | None:
            return dawdle() if slow_builds else None

        def measure(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
            if not slow_builds:
                dawdle()
            return LANDSCAPE(task, config)

        option = remote(tmp_path, measure, fail=fail)
        tuner = tuner_of(name=name)
        keys: list[str] = []
        rounds = [prepare_round(tuner, TASK, 4, option)]
        for _ in range(4):
            while len(rounds) < 3:
                rounds.append(prepare_round(tuner, TASK, 4, option, after=rounds[-1]))
            keys += [outcome.config.key for outcome in rounds.pop(0).measure()]
        for prepared in rounds:
            prepared.discard()
        return keys

    keys = search(slow_builds=True)
    assert len(keys) == len(set(keys)) == 16
    assert search(slow_builds=False) == keys


def test_the_tuner_is_used_by_one_thread_at_a_time(tmp_path: Path) -> None:
    inside: list[str] = []

    class Guarded(RandomTuner):
        def ask(self, n: int) -> list[Config]:
            return self._alone("ask", lambda: RandomTuner.ask(self, n))

        def tell(self, results: Sequence[TrialResult]) -> None:
            self._alone("tell", lambda: RandomTuner.tell(self, results))

        def _alone(self, method: str, work: Callable[[], list[Config] | None]) -> list[Config]:
            assert not inside, f"{method} during {inside}"
            inside.append(method)
            try:
                return work() or []
            finally:
                dawdle()
                inside.pop()

    def fail(task: TuningTask, config: Config) -> Failure | None:
        refused = sum(map(ord, config.key)) % 3 > 0
        return Failure(Outcome.INSTANTIATION_ERROR, "so it is") if refused else None

    tuner = Guarded(SPACES[TASK.workload.key], seed=2)
    option = remote(tmp_path, fail=fail)
    current = prepare_round(tuner, TASK, 6, option)
    for _ in range(6):
        following = prepare_round(tuner, TASK, 6, option, after=current)
        assert current.measure()
        current = following
    current.discard()


def test_a_lost_device_gives_back_what_was_built_ahead(tmp_path: Path) -> None:
    def lost(task: TuningTask, config: Config) -> Failure:
        return Failure(Outcome.INFRASTRUCTURE_ERROR, "gone")

    tuner = tuner_of()
    prepared = prepare_round(tuner, TASK, 4, remote(tmp_path, lost, workers=2))
    outcomes = prepared.measure()
    assert [outcome.is_trial for outcome in outcomes] == [False] * 4
    assert {outcome.message for outcome in outcomes} == {"gone"}
    assert list(tmp_path.iterdir()) == []
    assert sorted(outcome.key for outcome in tuner.ask(4)) == sorted(
        outcome.asked.key for outcome in outcomes
    )


def test_a_spent_space_ends_in_an_empty_round(tmp_path: Path) -> None:
    space = tiny_space()
    builder = ReplayBuilder({TASK.workload.key: space}, work_dir=tmp_path)
    option = MeasureOption(builder=builder, runner=ReplayRunner(steady, shares_host=False))
    tuner = make_tuner("grid", TASK, space)
    first = prepare_round(tuner, TASK, 16, option)
    second = prepare_round(tuner, TASK, 16, option, after=first)
    assert (len(first.measure()), len(second.measure())) == (16, 2)
    assert prepare_round(tuner, TASK, 16, option).measure() == ()


class Timed(ReplayBuilder):
    """Says that builds took so long."""

    def __init__(self, folder: Path, build_sec: float, workers: int) -> None:
        super().__init__(SPACES, work_dir=folder, workers=workers)
        self._sec = build_sec

    def build_each(self, inputs: Sequence[BuildInput]) -> Builds:
        return ((number, replace(build, build_sec=self._sec)) for number, build in super().build_each(inputs))


@pytest.mark.parametrize(("workers", "share"), [(1, 0.0), (4, 0.0), (8, 0.5), (16, 0.75)])
def test_what_is_saved_is_the_wait_for_kernels_as_far_as_builders_are_free(
    tmp_path: Path, workers: int, share: float
) -> None:
    """Four kernels take an hour each to build; measuring takes no time beside that."""
    builder = Timed(tmp_path, 3600.0, workers)
    option = MeasureOption(builder=builder, runner=ReplayRunner(steady, shares_host=False))
    prepared = prepare_round(tuner_of(), TASK, 4, option)
    assert prepared.saved_share == 0.0
    prepared.measure()
    assert prepared.saved_share == pytest.approx(share, abs=0.02)
