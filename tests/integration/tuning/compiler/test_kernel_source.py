"""`kernel_source`: the scheduled TensorIR and the generated code of a config, whatever the workload's names are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tunefarm_tuning.compiler.kernel_source import KernelSource, kernel_source
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.interfaces import BuildInput
from tunefarm_tuning.process import ChildClosed
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.workload.task import TuningTask

H100 = Target.from_json(
    {
        "kind": "cuda",
        "arch": "sm_90",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "max_num_threads": 1024,
        "thread_warp_size": 32,
    }
)


def space_of(task: TuningTask) -> ConfigSpace:
    with LocalBuilder(workers=1) as builder:
        return builder.config_space(task)


def built(task: TuningTask) -> tuple[ConfigSpace, Config]:
    """Return a task's space, and a config as it was applied: records have no others."""
    with LocalBuilder(workers=1) as builder:
        space = builder.config_space(task)
        (config,) = space.sample(np.random.default_rng(0), 1)
        (result,) = builder.build([BuildInput(task=task, config=config)])
        assert result.failure is None
        return space, result.config


def record_of(task: TuningTask, config: Config, space_key: str) -> TuningRecord:
    return TuningRecord(
        workload_key=task.workload.key,
        target_key=task.target.key,
        device_model="here",
        toolchain=toolchain_key(),
        space_key=space_key,
        config=config,
        outcome=Outcome.OK,
        samples_sec=(1e-3,),
        build_sec=0.1,
        measured_at=1.8e9,
    )


def test_a_kernel_for_a_cpu() -> None:
    task = sample_task("matmul", n=64)
    space, config = built(task)
    source = kernel_source(task, record_of(task, config, space.key))
    assert source.toolchain == toolchain_key()
    assert source.kinds == ("schedule", "llvm", "asm")
    assert "T.prim_func" in source.text("schedule")
    assert "left: T.Buffer((64, 64)" in source.text("schedule")
    assert "define " in source.text("llvm")
    assert "\tret" in source.text("asm")
    assert not any(text.is_cut for text in source.texts)
    assert KernelSource.from_json(source.to_json()) == source
    with pytest.raises(NotFoundError, match="it has schedule, llvm, asm"):
        source.find("cuda")

    short = kernel_source(task, config, limit_bytes=500)
    llvm = short.find("llvm")
    assert llvm.is_cut
    assert llvm.size_bytes == source.find("llvm").size_bytes
    assert len(llvm.text) <= 500
    assert source.text("llvm").startswith(llvm.text)
    assert llvm.text.endswith("\n"), "whole lines"


@pytest.mark.exhaustive
def test_a_kernel_for_a_gpu_needs_none() -> None:
    task = sample_task("relu", n=4096, target=H100)
    (config,) = space_of(task).sample(np.random.default_rng(0), 1)
    source = kernel_source(task, config)
    assert source.kinds == ("schedule", "cuda")
    assert "__global__ void" in source.text("cuda")
    assert 'thread="blockIdx.x"' in source.text("schedule")


def test_what_does_not_fit() -> None:
    task = sample_task("matmul", n=64)
    record = record_of(task, Config(0, ()), "another space")
    for other, code in (
        (replace(record, workload_key="else"), "other-workload"),
        (replace(record, target_key="else"), "other-target"),
        (replace(record, toolchain="else"), "other-toolchain"),
    ):
        with pytest.raises(InvalidInputError) as raised:
            kernel_source(task, other)
        assert raised.value.code == code
    with pytest.raises(InvalidInputError) as raised:
        kernel_source(task, record)
    assert raised.value.code == "space-changed"
    with pytest.raises(InvalidInputError) as raised:
        kernel_source(task, Config(99, ()))
    assert raised.value.code == "does-not-apply"
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(ChildClosed):
        kernel_source(task, Config(0, ()), cancellation=cancelled)


@pytest.mark.exhaustive
def test_names_of_a_stranger() -> None:
    task = sample_task("hostile", n=64)
    (config,) = space_of(task).sample(np.random.default_rng(0), 1)
    source = kernel_source(task, config)
    for text in source.texts:
        assert "\x1b" not in text.text
        assert "\u202e" not in text.text
        assert all(c.isprintable() or c in "\n\t" for c in text.text)
