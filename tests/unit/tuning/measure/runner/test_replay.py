"""The replay builder, the replay runner and the landscape are as strict as the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, DeviceInfo, Failure, MeasureInput
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.measure.runner.replay import REPLAY_DEVICE, Recording, ReplayRunner
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.testing.synthetic import conv_space, synthetic_task, tiny_space
from tunefarm_tuning.testing.tuner_contract import history

TASK = synthetic_task()
SPACE = tiny_space()
CONFIGS = [SPACE.config_at(i) for i in range(SPACE.size)]


def builder(**how: object) -> ReplayBuilder:
    return ReplayBuilder({TASK.workload.key: SPACE}, **how)  # type: ignore[arg-type]


def inputs(configs: list[Config]) -> list[BuildInput]:
    return [BuildInput(task=TASK, config=config) for config in configs]


def test_one_result_per_input_in_order_and_a_value_or_a_failure() -> None:
    def fail(task: object, config: Config) -> Failure | None:
        return Failure(Outcome.BUILD_TIMEOUT, "slow") if config.sketch == 2 else None

    with builder(fail=fail) as replay:
        assert replay.config_space(TASK) == SPACE
        results = replay.build(inputs([*CONFIGS, Config(7, ())]))
    assert [r.config for r in results] == [*CONFIGS, Config(7, ())]
    assert all((r.artifact_path is None) != (r.failure is None) for r in results)
    assert [r.failure.outcome for r in results if r.failure] == [
        Outcome.BUILD_TIMEOUT,
        Outcome.BUILD_TIMEOUT,
        Outcome.INSTANTIATION_ERROR,
    ]
    assert replay.build([]) == []


def test_close_deletes_what_the_caller_did_not() -> None:
    replay = builder()
    path = replay.build(inputs(CONFIGS[:1]))[0].artifact_path
    assert path is not None
    assert path.exists()
    replay.close()
    assert not path.exists()


def test_a_workload_without_a_space_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        builder().config_space(synthetic_task("other"))
    assert caught.value.code == "no-config-space"


def measure(answer: object, configs: list[Config]) -> list[tuple[float, ...] | Outcome]:
    with builder() as replay, ReplayRunner(answer) as runner:  # type: ignore[arg-type]
        built = [b.artifact_path for b in replay.build(inputs(configs))]
        results = runner.run([MeasureInput(task=TASK, artifact_path=path) for path in built if path])
    return [r.failure.outcome if r.failure else r.samples_sec for r in results]


def test_the_runner_answers_for_each_config() -> None:
    def answer(task: object, config: Config) -> tuple[float, ...] | Failure:
        return (1.0 + config.sketch,) if config.sketch else Failure(Outcome.RUN_CRASH, "crashed")

    assert measure(answer, CONFIGS[14:]) == [Outcome.RUN_CRASH, (2.0,), (3.0,), (3.0,)]


def test_after_a_lost_device_the_rest_of_the_batch_is_lost() -> None:
    def answer(task: object, config: Config) -> tuple[float, ...] | Failure:
        return Failure(Outcome.INFRASTRUCTURE_ERROR, "gone") if config == CONFIGS[1] else (1.0,)

    assert measure(answer, CONFIGS[:4]) == [(1.0,), *[Outcome.INFRASTRUCTURE_ERROR] * 3]


def test_a_missing_artifact_is_a_run_error(tmp_path: Path) -> None:
    runner = ReplayRunner(lambda *_: (1.0,), device=DeviceInfo(model="m", num_cores=1))
    assert (runner.device.model, REPLAY_DEVICE.model) == ("m", "replay")
    (result,) = runner.run([MeasureInput(task=TASK, artifact_path=tmp_path / "none")])
    assert result.failure is not None
    assert result.failure.outcome is Outcome.RUN_ERROR


def test_records_are_replayed() -> None:
    records = history(SPACE, CONFIGS[:3]).records
    answers = measure(Recording(records, scale=0.0).measure, CONFIGS[:4])
    assert answers == [*(r.samples_sec for r in records), Outcome.RUN_ERROR]


def test_a_landscape_is_fixed_by_its_seed() -> None:
    space = conv_space()
    configs = [space.config_at(i * 10**5) for i in range(50)]
    costs = [SyntheticLandscape(space, seed=1).cost_sec(c) for c in configs]
    assert costs == [SyntheticLandscape(space, seed=1).cost_sec(c) for c in configs]
    assert costs != [SyntheticLandscape(space, seed=2).cost_sec(c) for c in configs]
    assert min(costs) >= 1e-3
    assert max(costs) > 2 * min(costs)


def test_a_landscape_fails_the_share_that_it_is_told() -> None:
    space = conv_space()
    landscape = SyntheticLandscape(space, failing=0.3)
    answers = [landscape(TASK, space.config_at(i * 10**4)) for i in range(500)]
    failures = [a.outcome for a in answers if isinstance(a, Failure)]
    assert 0.2 < len(failures) / 500 < 0.4
    assert set(failures) == {Outcome.RUN_ERROR, Outcome.RUN_TIMEOUT, Outcome.RUN_CRASH}
    with pytest.raises(ValueError, match="another space"):
        landscape.cost_sec(Config(9, ()))


def test_replayed_kernels_are_timed_in_turn() -> None:
    def answer(task: object, config: Config) -> tuple[float, ...] | Failure:
        return (1.0, 2.0) if config == CONFIGS[0] else Failure(Outcome.RUN_CRASH, "crashed")

    with builder() as replay, ReplayRunner(answer, shares_host=False) as runner:
        assert not runner.shares_host
        built = [b.artifact_path for b in replay.build(inputs(CONFIGS[:2]))]
        good, bad = runner.run_interleaved(
            [MeasureInput(task=TASK, artifact_path=path) for path in built if path], rounds=5
        )
        first, _ = runner.run_interleaved(
            [MeasureInput(task=TASK, artifact_path=built[0])] * 2 if built[0] else [], rounds=5
        )
        mixed = [
            MeasureInput(task=synthetic_task(name), artifact_path=tmp)
            for name, tmp in zip("ab", built, strict=True)
            if tmp
        ]
        with pytest.raises(ValueError, match="different tasks"):
            runner.run_interleaved(mixed, rounds=5)
    assert first.samples_sec == (1.0, 2.0, 1.0, 2.0, 1.0)
    assert good.samples_sec == (1.0, 2.0)  # each by itself: one of them crashed
    assert bad.failure is not None
    assert bad.samples_sec == ()
