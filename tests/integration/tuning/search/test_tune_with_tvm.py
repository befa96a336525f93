"""`tune` with the real compiler, on this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.interfaces import MeasureOption, TimingOption
from tunefarm_tuning.measure.peak import measure_peak
from tunefarm_tuning.measure.runner.local import LocalRunner
from tunefarm_tuning.records.record import load_records
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.events import RoundFinished, TuneEvent
from tunefarm_tuning.search.round import run_round
from tunefarm_tuning.search.tune import tune
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tuner import make_tuner
from tunefarm_tuning.tuner.evolutionary import EvolutionaryTuner

QUICK = TimingOption(repeat=2, min_repeat_ms=1)


def test_two_tasks_are_tuned_and_the_run_resumes(tmp_path: Path) -> None:
    tasks = [sample_task("matmul", n=64), sample_task("conv2d", size=14, channels=16)]
    log = tmp_path / "log.jsonl"
    events: list[TuneEvent] = []
    with LocalBuilder(workers=1) as builder, LocalRunner(timing=QUICK) as runner:
        option = MeasureOption(builder=builder, runner=runner)
        first = tune(
            tasks, budget=Budget(trials=32), measure_option=option, log_path=log, on_event=events.append
        )
        second = tune(
            tasks,
            budget=Budget(trials=8),
            measure_option=option,
            log_path=log,
            records=load_records(log),
            tuner="ga",
        )
        device = runner.device
        spaces = {task.workload.key: builder.config_space(task) for task in tasks}
    assert (first.trials, second.trials) == (32, 8)
    assert {task.failed for task in first.tasks} == {None}
    assert first.best_latency_sec is not None
    assert sum(r.outcome is Outcome.OK for r in first.records) > 16
    assert sum(len(e.outcomes) for e in events if isinstance(e, RoundFinished)) == 32
    records = list(load_records(log))
    assert records == [*first.records, *second.records]
    assert len({(r.workload_key, r.config.key) for r in records}) == 40
    for record in records:
        assert record.space_key == spaces[record.workload_key].key
        assert record.target_key == tasks[0].target.key
        assert (record.device_model, record.toolchain) == (device.model, toolchain_key())
        assert bool(record.samples_sec) == (record.outcome is Outcome.OK)
        if record.samples_sec and not (record.extra.get("truncated") or record.confirmed):
            assert len(record.samples_sec) == 2
    peak = measure_peak(tasks[0].target, threads=device.num_cores, memory_bytes=64 << 20)
    for task, summary in zip(tasks, second.tasks, strict=True):
        alone, stands = summary.roofline(), summary.roofline(peak, threads=device.num_cores)
        assert alone is not None
        assert alone.share_of_peak is None
        assert stands is not None
        assert (
            stands.flops_per_sec == alone.flops_per_sec == task.workload.flops / (summary.best_cost_sec or 0)
        )
        assert (stands.share_of_peak or 0) > 0
        # Kernels that fit into the smallest caches have a roofline only if those caches were measured.
        assert stands.share_of_bound is None or stands.share_of_bound >= (stands.share_of_peak or 0)
    assert second.tasks[0].moved_bytes == 3 * 64 * 64 * 4
    assert (second.tasks[1].moved_bytes or 0) > 0


@pytest.mark.exhaustive
def test_a_small_kernel_without_choices_is_spent() -> None:
    """An element-wise kernel has a handful of schedules on a CPU."""
    task = sample_task("relu", n=1000)
    with LocalBuilder(workers=1) as builder, LocalRunner(timing=QUICK) as runner:
        result = tune(
            [task],
            budget=Budget(trials=200),
            measure_option=MeasureOption(builder=builder, runner=runner),
            tuner="random",
        )
    assert result.stop_reason == "exhausted"
    assert 1 <= result.trials < 200


def test_metaschedules_own_search_proposes_what_our_builder_builds() -> None:
    task = sample_task("matmul", n=64)
    with LocalBuilder(workers=1) as builder, LocalRunner(timing=QUICK) as runner:
        tuner = make_tuner("evolutionary", task, builder.config_space(task), seed=3)
        results = run_round(tuner, task, 8, MeasureOption(builder=builder, runner=runner))
        tuner.close()
    assert len({result.config.key for result in results}) == 8
    # Nothing snaps: what MetaSchedule proposes has been applied before.
    assert all(result.asked == result.config for result in results)
    assert {result.outcome for result in results} == {Outcome.OK}


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_metaschedules_own_search_survives_the_death_of_its_child() -> None:
    task = sample_task("matmul", n=64)
    with LocalBuilder(workers=1) as builder, LocalRunner(timing=QUICK) as runner:
        space = builder.config_space(task)
        option = MeasureOption(builder=builder, runner=runner)
        tuner = make_tuner("evolutionary", task, space, seed=3)
        assert isinstance(tuner, EvolutionaryTuner)
        first = run_round(tuner, task, 8, option)
        second = run_round(tuner, task, 12, option)
        pid = tuner._child.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        after_its_death = tuner.ask(16)  # more than what was left of the last generation
        tuner.close()
        results = [*first, *second]
        again = EvolutionaryTuner(space, task, seed=3)
        again.tell(results)
        third = again.ask(8)
        again.close()
    assert len(first) == 8
    assert len(second) == 12
    assert len({config.key for config in (*(result.config for result in results), *after_its_death)}) == 36
    assert all(r.asked == r.config for r in results)
    assert {r.outcome for r in results} == {Outcome.OK}
    assert len(third) == 8
    assert {c.key for c in third}.isdisjoint(r.config.key for r in results)
