"""Records, tasks, config spaces and an artifact of the previous release, in this release's engine."""

from __future__ import annotations

import json
import math
import platform
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunefarm
import tunefarm_tuning
from tunefarm_tuning import (
    Budget,
    ConfigSpace,
    History,
    LocalBuilder,
    MeasureOption,
    Model,
    Outcome,
    ReplayRunner,
    TuningTask,
    apply_history_best,
    extract_tasks,
    host_device_model,
    import_model,
    load_records,
    parse_target,
    toolchain_key,
    tune,
    verify,
)
from tunefarm_tuning.measure.interfaces import DeviceInfo

TARGET = "llvm -mcpu=x86-64-v2 -num-cores=1"

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the copies are x86-64's")


@pytest.fixture(scope="module", params=[".", "tails"])
def search(request: pytest.FixtureRequest, copies: Path) -> Path:
    """The folder of a network, its tasks and spaces, and the records of a search; in ``tails``, tiles may leave a tail."""
    return copies / str(request.param)


@pytest.fixture(scope="module")
def model(search: Path) -> Model:
    return import_model(search / "net.onnx")


@pytest.fixture(scope="module")
def tasks(model: Model) -> tuple[TuningTask, ...]:
    return extract_tasks(model, parse_target(TARGET))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_artifact_computes_what_it_did(copies: Path) -> None:
    arrays = np.load(copies / "net.npz")
    tuned = tunefarm.load(copies / "net.tunefarm", threads=1)
    np.testing.assert_allclose(tuned(arrays["x"])["y"], arrays["y"], rtol=1e-4, atol=1e-5)
    report = verify(copies / "net.tunefarm", import_model(copies / "net.onnx"))
    assert report.ok


def test_records_are_read_and_written_back_as_they_were(search: Path) -> None:
    lines = (search / "records.jsonl").read_text(encoding="utf-8").splitlines()
    records = list(load_records(search / "records.jsonl"))
    assert [record.to_json() for record in records] == lines
    assert any(record.confirmed for record in records) or search.name == "tails"


def test_tiles_that_leave_a_tail_are_of_their_space(copies: Path) -> None:
    spaces = read_json(copies / "tails" / "spaces.json")
    tails = 0
    for record in load_records(copies / "tails" / "records.jsonl"):
        space = ConfigSpace.from_json(spaces[record.workload_key])
        knobs = space.sketches[record.config.sketch].knobs
        for knob, decision in zip(knobs, record.config.decisions, strict=True):
            if isinstance(decision, tuple):
                assert math.prod(decision) in (knob.extent, *knob.tail_products)
                tails += math.prod(decision) != knob.extent
    assert tails > 0


def without_registers(space: ConfigSpace) -> dict[str, Any]:
    """Return a space as JSON, without its CPU's registers: what a release knew of them is no part of a key."""
    data = space.to_json()
    for name in ("vector_bytes", "registers"):
        data.get("computation", {}).pop(name, None)
    return data


@pytest.mark.matrix(every=2, each_value=False)
def test_tasks_and_spaces_are_the_same(search: Path, tasks: tuple[TuningTask, ...]) -> None:
    """A record is found again by its task, its space and the toolchain: none of these keys may change."""
    stored = [TuningTask.from_json(task) for task in read_json(search / "tasks.json")]
    assert [task.workload.key for task in tasks] == [task.workload.key for task in stored]
    assert [task.target.key for task in tasks] == [task.target.key for task in stored]
    spaces = {key: ConfigSpace.from_json(space) for key, space in read_json(search / "spaces.json").items()}
    with LocalBuilder(workers=1) as builder:
        for task in tasks:
            space = builder.config_space(task)
            assert space.key == spaces[task.workload.key].key
            assert without_registers(space) == without_registers(spaces[task.workload.key])
    for record in load_records(search / "records.jsonl"):
        assert record.toolchain == toolchain_key()
        assert record.space_key == spaces[record.workload_key].key
        assert spaces[record.workload_key].contains(record.config)


@pytest.mark.matrix(every=2, each_value=False)
def test_a_compile_finds_the_records(search: Path, model: Model, tmp_path: Path) -> None:
    """They hold for the device model that they were measured on, so they are taken for this machine's."""
    records = [
        replace(record, device_model=host_device_model()) for record in load_records(search / "records.jsonl")
    ]
    with apply_history_best(records) as history:
        tunefarm_tuning.compile(model, TARGET, output=tmp_path / "again", baseline=False)
    hits = {task.workload_key for task in history.coverage.hits}
    slow = {
        task.workload_key for task in history.coverage.misses if task.reason.value == "slower-than-untuned"
    }
    assert hits | slow == {record.workload_key for record in records}


@pytest.mark.matrix(every=2, each_value=False)
def test_a_search_goes_on_after_the_records(search: Path, tasks: tuple[TuningTask, ...]) -> None:
    """Configs that were tried are not tried again."""
    before = list(load_records(search / "records.jsonl"))
    tried = defaultdict(set)
    for record in before:
        tried[record.workload_key].add(record.config.key)
    device = DeviceInfo(model=before[0].device_model, num_cores=1, name="replayed")
    with (
        LocalBuilder(workers=1) as builder,
        ReplayRunner(lambda _task, _config: (1e-3,), device=device) as runner,
    ):
        option = MeasureOption(builder=builder, runner=runner)
        result = tune(
            tasks,
            budget=Budget(trials=8),
            measure_option=option,
            records=before,
            tuner="random",
            confirm=False,
        )
    assert len(result.records) == 8
    assert all(record.config.key not in tried[record.workload_key] for record in result.records)


def test_the_best_record_is_the_same(search: Path, tasks: tuple[TuningTask, ...]) -> None:
    records = list(load_records(search / "records.jsonl"))
    history = History(records)
    for task in tasks:
        record, reason, _ = history.find(
            task.workload.key,
            target_key=task.target.key,
            device_model=records[0].device_model,
            toolchain=toolchain_key(),
        )
        assert reason is None
        assert record is not None
        assert record.outcome is Outcome.OK
