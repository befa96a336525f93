"""`LocalBuilder`: time-outs, crashes, memory growth and cancelling cost candidates, never the builder."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, BuildResult
from tunefarm_tuning.process import ChildClosed, ChildProcess
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.workload.task import TuningTask


def inputs_for(builder: LocalBuilder, task: TuningTask, n: int) -> list[BuildInput]:
    configs = builder.config_space(task).sample(np.random.default_rng(0), n)
    return [BuildInput(task=task, config=config) for config in configs]


def outcomes(results: list[BuildResult]) -> list[Outcome]:
    return [Outcome.OK if result.failure is None else result.failure.outcome for result in results]


def wait_for_a_build(child: ChildProcess) -> None:
    wait_until(lambda: child._in_call, "a build to begin", every_sec=0.002)


def test_a_time_out_fails_the_candidate_alone(tmp_path: Path) -> None:
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1, timeout_sec=0.001, work_dir=tmp_path) as builder:
        assert outcomes(builder.build(inputs_for(builder, task, 1))) == [Outcome.BUILD_TIMEOUT]
        builder._workers[0]._timeout_sec = 60.0
        assert outcomes(builder.build(inputs_for(builder, task, 2))) == [Outcome.OK] * 2


@pytest.mark.exhaustive
def test_a_crash_fails_the_candidate_alone(tmp_path: Path) -> None:
    task = sample_task("conv2d", size=14, channels=16)
    with LocalBuilder(workers=1, work_dir=tmp_path) as builder:
        inputs = inputs_for(builder, task, 3)
        child = builder._workers[0]._child
        results: list[BuildResult] = []
        thread = threading.Thread(target=lambda: results.extend(builder.build(inputs)))
        thread.start()
        wait_for_a_build(child)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSEGV)
        thread.join()
        assert sorted(outcomes(results)) == [Outcome.BUILD_CRASH, Outcome.OK, Outcome.OK]
        crashed = next(result for result in results if result.failure is not None)
        assert crashed.failure is not None
        assert "SIGSEGV" in crashed.failure.message
        assert crashed.artifact_path is None


def test_a_build_says_how_much_of_it_was_applying_the_config(tmp_path: Path) -> None:
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1, work_dir=tmp_path) as builder:
        inputs = inputs_for(builder, task, 1)
        (first,), (again,) = builder.build(inputs), builder.build(inputs)
    assert 0 < first.apply_sec < first.build_sec
    assert again.apply_sec == 0  # known: nothing was applied


@pytest.mark.exhaustive
def test_a_child_that_has_grown_is_replaced(tmp_path: Path) -> None:
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1, work_dir=tmp_path) as builder:
        inputs = inputs_for(builder, task, 4)
        builder.build(inputs[:1])
        worker = builder._workers[0]
        first = worker._child.pid
        worker._growth_bytes = -1
        builder.build(inputs[1:2])
        assert not worker._child.alive
        assert outcomes(builder.build(inputs[2:])) == [Outcome.OK] * 2
        assert worker._child.pid != first


def test_a_kernel_that_was_built_lately_is_not_built_again(tmp_path: Path) -> None:
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1, work_dir=tmp_path) as builder:
        inputs = inputs_for(builder, task, 3)
        first = builder.build(inputs)
        for result in first:
            assert result.artifact_path is not None
        held = [result.artifact_path.read_bytes() for result in first if result.artifact_path is not None]
        for result in first:
            if result.artifact_path is not None:
                result.artifact_path.unlink()
        builder._workers[0].interrupt()  # no child is needed for what the parent knows
        again = builder.build(inputs)
        assert not builder._workers[0]._child.alive
        assert [result.config for result in again] == [result.config for result in first]
        assert [result.artifact_path.read_bytes() for result in again if result.artifact_path] == held
        paths = {result.artifact_path for result in (*first, *again)}
        assert len(paths) == 6
        assert builder._workers[0]._cache.hits == 3
        # A child finds by code what the parent does not know by config.
        builder._workers[0]._cache._known.clear()
        assert outcomes(builder.build(inputs)) == [Outcome.OK] * 3
        assert builder._workers[0]._cache.hits == 6


@pytest.mark.exhaustive
def test_builds_can_be_taken_one_by_one_and_left(tmp_path: Path) -> None:
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1, work_dir=tmp_path) as builder:
        inputs = inputs_for(builder, task, 6)
        with closing(builder.build_each(inputs)) as results:
            number, first = next(results)
        assert outcomes([first]) == [Outcome.OK]
        kernels = list((builder._scratch.path / "kernels").iterdir())
        assert kernels == [first.artifact_path]
        assert dict(builder.build_each(inputs))[number].config == first.config


def test_closing_ends_a_build_in_another_thread(tmp_path: Path) -> None:
    task = sample_task("conv2d", size=14, channels=16)
    builder = LocalBuilder(workers=1, work_dir=tmp_path)
    inputs = inputs_for(builder, task, 16)
    child = builder._workers[0]._child
    results: list[BuildResult] = []
    thread = threading.Thread(target=lambda: results.extend(builder.build(inputs)))
    thread.start()
    wait_for_a_build(child)
    builder.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(results) == len(inputs)
    assert outcomes(results)[-1] is Outcome.INFRASTRUCTURE_ERROR
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ChildClosed):
        builder.config_space(task)


def test_an_interrupt_ends_a_build_and_the_builder_stays_usable(tmp_path: Path) -> None:
    task = sample_task("conv2d", size=14, channels=16)
    with LocalBuilder(workers=1, work_dir=tmp_path) as builder:
        inputs = inputs_for(builder, task, 64)
        child = builder._workers[0]._child

        def interrupt() -> None:
            wait_for_a_build(child)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            builder.build(inputs)
        thread.join()
        assert len(list((builder._scratch.path / "kernels").iterdir())) < 64
        assert outcomes(builder.build(inputs[:1])) == [Outcome.OK]


@pytest.mark.exhaustive
def test_a_target_nobody_can_schedule_for_is_refused(tmp_path: Path) -> None:
    workload = sample_task("matmul", n=32).workload
    task = TuningTask(workload=workload, target=Target(kind="no-such-kind"), weight=1)
    with LocalBuilder(workers=1, work_dir=tmp_path) as builder:
        with pytest.raises(InvalidInputError):
            builder.config_space(task)
        good = sample_task("matmul", n=32)
        assert outcomes(builder.build(inputs_for(builder, good, 1))) == [Outcome.OK]


def test_a_c_compiler_is_linker_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no cc")
    # gcc finds ld by itself; ours must not.
    only = tmp_path / "bin"
    only.mkdir()
    (only / "cc").symlink_to(compiler)
    monkeypatch.setenv("PATH", str(only))
    monkeypatch.setenv("COMPILER_PATH", "/usr/bin:/usr/local/bin")
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1, work_dir=tmp_path / "work") as builder:
        assert outcomes(builder.build(inputs_for(builder, task, 1))) == [Outcome.OK]


def test_without_any_linker_the_failure_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    task = sample_task("matmul", n=32)
    with LocalBuilder(workers=1, work_dir=tmp_path / "work") as builder:
        (result,) = builder.build(inputs_for(builder, task, 1))
    assert result.failure is not None
    assert result.failure.outcome is Outcome.BUILD_ERROR
    assert "no linker" in result.failure.message
