"""`tune` with a remote device: the next round is prepared while another is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import DeviceInfo, Failure, MeasureOption
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.measure.runner.replay import REPLAY_DEVICE, Answer, ReplayRunner
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.events import RoundFinished, TaskPicked, TuneEvent, TuneFinished
from tunefarm_tuning.search.progress import TaskProgress
from tunefarm_tuning.search.round_queue import RoundQueue, Spent
from tunefarm_tuning.search.tune import tune
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.testing.synthetic import conv_space, synthetic_task, tiny_space
from tunefarm_tuning.workload.task import TuningTask

TASKS = [synthetic_task("conv", flops=1e9), synthetic_task("dense", flops=9e8), synthetic_task("pool")]
SPACES: dict[str, ConfigSpace] = {
    TASKS[0].workload.key: conv_space(),
    TASKS[1].workload.key: conv_space(),
    TASKS[2].workload.key: tiny_space(),
}
LANDSCAPES = {key: SyntheticLandscape(space, failing=0.2) for key, space in SPACES.items()}
LONG_SEC = 60.0


def landscape(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
    return LANDSCAPES[task.workload.key](task, config)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    names = ("prepare-round", "build-")
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)],
        "the threads of rounds to end",
    )


def remote(
    tmp_path: Path,
    answer: Answer = landscape,
    *,
    fail: Callable[[TuningTask, Config], Failure | None] | None = None,
) -> MeasureOption:
    builder = ReplayBuilder(SPACES, work_dir=tmp_path, fail=fail, workers=2)
    return MeasureOption(builder=builder, runner=ReplayRunner(answer, shares_host=False))


def test_other_tasks_are_built_while_one_is_measured(tmp_path: Path) -> None:
    others = {TASKS[1].workload.key: threading.Event(), TASKS[2].workload.key: threading.Event()}

    def fail(task: TuningTask, config: Config) -> Failure | None:
        if task != TASKS[0]:
            others[task.workload.key].set()
        return None

    def measure(task: TuningTask, config: Config) -> tuple[float, ...]:
        assert all(event.wait(LONG_SEC) for event in others.values()), "the others were not built meanwhile"
        return (1e-3,)

    result = tune(
        TASKS,
        tuner="random",
        budget=Budget(trials=16),
        measure_option=remote(tmp_path, measure, fail=fail),
        confirm=False,
    )
    assert (result.trials, result.failures) == (16, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trials", [5, 8, 45, 61])
def test_the_trial_budget_is_met_exactly(tmp_path: Path, trials: int) -> None:
    events: list[TuneEvent] = []
    result = tune(
        TASKS,
        tuner="random",
        budget=Budget(trials=trials),
        measure_option=remote(tmp_path),
        on_event=events.append,
        confirm=False,
    )
    assert (result.trials, result.stop_reason) == (trials, "trials")
    assert len({(trial.workload_key, trial.config.key) for trial in result.records}) == trials
    # Rounds are told of one after another, as without overlap.
    kinds = [type(event) for event in events if isinstance(event, TaskPicked | RoundFinished | TuneFinished)]
    assert kinds == [TaskPicked, RoundFinished] * (len(kinds) // 2) + [TuneFinished]
    assert list(tmp_path.iterdir()) == []


def test_the_wall_clock_budget_throws_away_what_is_prepared(tmp_path: Path) -> None:
    result = tune(TASKS, tuner="random", budget=Budget(wall_sec=1e-9), measure_option=remote(tmp_path))
    assert result.stop_reason == "wall_sec"
    assert sum(task.trials > 0 for task in result.tasks) == 1
    assert list(tmp_path.iterdir()) == []


def test_patience_throws_away_what_is_prepared(tmp_path: Path) -> None:
    result = tune(
        TASKS,
        tuner="random",
        budget=Budget(patience_trials=1),
        measure_option=remote(tmp_path, lambda *_: (1e-3,)),
        confirm=False,
    )
    assert result.stop_reason == "patience_trials"
    assert list(tmp_path.iterdir()) == []


def test_small_spaces_are_spent(tmp_path: Path) -> None:
    result = tune(TASKS[2:], budget=Budget(trials=1000), measure_option=remote(tmp_path), tuner="ga")
    assert (result.stop_reason, result.trials) == ("exhausted", 18)
    assert result.tasks[0].exhausted


@pytest.mark.parametrize("calls", [0, 3, 20])
def test_ctrl_c_keeps_what_there_is_and_leaves_nothing(tmp_path: Path, calls: int) -> None:
    measured: list[str] = []

    def interrupt(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        if len(measured) == calls:
            raise KeyboardInterrupt
        measured.append(config.key)
        return landscape(task, config)

    result = tune(TASKS, tuner="random", budget=Budget(trials=80), measure_option=remote(tmp_path, interrupt))
    assert result.stop_reason == "interrupted"
    assert result.trials <= calls
    assert list(tmp_path.iterdir()) == []


def test_a_lost_device_keeps_what_there_is_and_leaves_nothing(tmp_path: Path) -> None:
    measured: list[str] = []

    def lose(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        measured.append(config.key)
        return (1e-3,) if len(measured) <= 20 else Failure(Outcome.INFRASTRUCTURE_ERROR, "away")

    result = tune(TASKS, tuner="random", budget=Budget(trials=80), measure_option=remote(tmp_path, lose))
    assert (result.stop_reason, result.trials) == ("device-lost", 20)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DeviceLostError):
        tune(TASKS, tuner="random", budget=Budget(trials=80), measure_option=remote(tmp_path, lose))
    assert list(tmp_path.iterdir()) == []


def test_bad_tasks_do_not_end_the_run(tmp_path: Path) -> None:
    strange = [synthetic_task(f"strange-{i}", flops=1e12) for i in range(2)]
    result = tune(
        [*strange, *TASKS], tuner="random", budget=Budget(trials=40), measure_option=remote(tmp_path)
    )
    assert result.trials == 40
    assert [task.failed is None for task in result.tasks] == [False, False, True, True, True]


def test_equal_seeds_search_a_task_equally_however_long_anything_takes(tmp_path: Path) -> None:
    """One of these is overlapped, the other is not: the first rounds of each task are the same."""

    def configs(slow: bool) -> dict[str, list[str]]:
        def measure(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
            if slow:
                threading.Event().wait(0.01)
            return landscape(task, config)

        result = tune(
            TASKS[:2],
            tuner="xgb",
            budget=Budget(trials=16),
            seed=5,
            measure_option=remote(tmp_path, measure),
            confirm=False,
        )
        keys: dict[str, list[str]] = {}
        for record in result.records:
            keys.setdefault(record.workload_key, []).append(record.config.key)
        return keys

    assert configs(slow=True) == configs(slow=False)


def progress(*tasks: TuningTask, device: DeviceInfo = REPLAY_DEVICE) -> list[TaskProgress]:
    return [
        TaskProgress(task, tuner="random", seed=0, device=device, toolchain="t", earlier=()) for task in tasks
    ]


def spent(trials: int = 0, budget: int = 80) -> Spent:
    return Spent(budget=Budget(trials=budget), trials=trials, wall_sec=0.0)


@pytest.mark.parametrize(
    ("saved_share", "rounds", "ahead"), [(0.0, 9, False), (0.3, 3, False), (0.3, 4, True)]
)
def test_a_task_is_ahead_of_its_own_results_where_that_pays(
    tmp_path: Path, saved_share: float, rounds: int, ahead: bool
) -> None:
    (task,) = progress(TASKS[0])
    queue = RoundQueue([task], remote(tmp_path), round_size=4, histories=())
    for _ in range(rounds):
        task.add_round([], spent_sec=1.0, exhausted=False)
    task.saved_share = saved_share
    first = queue.next(spent())
    assert first is not None
    assert bool(queue._ahead) is ahead
    first.prepared.measure()
    second = queue.next(spent(4))
    assert second is not None
    assert second.blind is ahead
    configs = [*first.prepared.candidates.configs, *second.prepared.candidates.configs]
    assert len({config.key for config in configs}) == 8
    queue.close()
    assert list(tmp_path.iterdir()) == []


def test_a_round_is_not_prepared_where_the_one_before_spends_the_budget(tmp_path: Path) -> None:
    queue = RoundQueue(progress(*TASKS[:2]), remote(tmp_path), round_size=8, histories=())
    first = queue.next(spent(trials=70, budget=76))
    assert first is not None
    assert first.size == 3  # half of what is left: the other task shall have a round as well
    assert queue._ahead
    assert queue._ahead[0].size == 3
    first.prepared.measure()
    queue.close()
    last = RoundQueue(progress(*TASKS[:2]), remote(tmp_path), round_size=8, histories=())
    assert last.next(spent(trials=75, budget=76)) is not None
    assert not last._ahead
    last.close()
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_ended_meanwhile_is_not_measured(tmp_path: Path) -> None:
    first, second = progress(*TASKS[:2])
    queue = RoundQueue([first, second], remote(tmp_path), round_size=4, histories=())
    current = queue.next(spent())
    assert current is not None
    assert queue._ahead
    current.prepared.measure()
    second.failed = "broken"
    following = queue.next(spent(4))
    assert following is not None
    assert following.task == 0
    queue.close()
    assert list(tmp_path.iterdir()) == []
