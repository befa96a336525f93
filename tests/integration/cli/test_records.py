"""`tunefarm records import` and `export`: JSON lines from farm to farm, and MetaSchedule's database both ways."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay_server import ReplayServer

from tunefarm.client import Client
from tunefarm_db.values import Workload as WorkloadRow
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.records.metaschedule import RECORDS, WORKLOADS
from tunefarm_tuning.records.record import TuningRecord, load_records
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.testing.workloads import sample_task

TARGET = "llvm -mcpu=x86-64-v3 -num-cores=1"


@pytest.fixture(scope="module")
def records() -> list[TuningRecord]:
    """Records of a small product, as an engine's log has them; three configs of its space."""
    task = sample_task("matmul", n=64, target=TARGET)
    with LocalBuilder(workers=1) as builder:
        space = builder.config_space(task)
    configs = {config.key: config for config in space.sample(np.random.default_rng(1), 12)}
    return [
        TuningRecord(
            workload_key=task.workload.key,
            target_key=task.target.key,
            device_model="replay-cpu",
            toolchain=toolchain_key(),
            space_key=space.key,
            config=config,
            outcome=Outcome.OK,
            samples_sec=(1e-5 * (position + 1),),
            build_sec=0.1,
            measured_at=1.0,
        )
        for position, config in enumerate(configs.values())
    ]


@pytest.fixture
def with_workload(farm: ReplayServer) -> None:
    workload = sample_task("matmul", n=64, target=TARGET).workload
    with farm.services.uow.write() as repos:
        repos.workloads.add_many(
            [
                WorkloadRow(
                    key=workload.key,
                    toolchain=toolchain_key(),
                    name=workload.name,
                    flops=workload.flops,
                    args=[spec.to_json() for spec in workload.args],
                    ir=workload.ir,
                )
            ]
        )


def write(path: Path, records: list[TuningRecord]) -> Path:
    path.write_text("".join(f"{record.to_json()}\n" for record in records))
    return path


def parsed(result: Any) -> Any:
    return json.loads(result.stdout)


@pytest.mark.usefixtures("with_workload")
def test_records_go_to_metaschedule_and_come_back(
    run: Any, client: Client, records: list[TuningRecord], tmp_path: Path
) -> None:
    log = write(tmp_path / "log.jsonl", records)
    assert parsed(run("records", "import", log, "--json")) == {"imported": len(records), "left_out": {}}
    again = run("records", "import", log)
    assert "0 records imported" in again.stdout
    assert f"{len(records)} records left out (on-record): the farm has it already" in again.stderr

    lines = tmp_path / "lines.jsonl"
    run("records", "export", "-o", lines)
    line = json.loads(lines.read_text().splitlines()[0])
    assert (line["kernel"], line["shapes"]) == ("matmul", "64x64, 64x64 -> 64x64 float32")
    assert sorted(load_records(lines), key=str) == sorted(records, key=str)

    database = tmp_path / "database"
    exported = parsed(run("records", "export", "--format", "metaschedule", "-o", database, "--json"))
    assert (exported["records"], exported["left_out"]) == (len(records), {})
    assert {path.name for path in database.iterdir()} == {WORKLOADS, RECORDS}

    back = parsed(run("records", "import", database, "--json"))  # the farm's only device model
    assert back == {"imported": 0, "left_out": {"on-record": exported["records"]}}
    other = parsed(run("records", "import", database, "--device-model", "another", "--json"))
    assert other["imported"] == exported["records"]
    imported = [record for record in client.records.all() if record.device_model == "another"]
    assert {record.tuner for record in imported} == {"metaschedule"}
    assert {record.workload_key for record in imported} == {records[0].workload_key}
    refused = run("records", "export", "--format", "metaschedule", "-o", tmp_path / "new", code=2)
    assert "2 device models (another, replay-cpu)" in refused.stderr


def test_kernels_that_no_model_has_are_left_out(
    run: Any, records: list[TuningRecord], tmp_path: Path
) -> None:
    log = write(tmp_path / "log.jsonl", records)
    assert "(unknown-workload): no model of the farm" in run("records", "import", log).stderr
    kept = parsed(run("records", "import", log, "--keep-unknown", "--json"))
    assert kept == {"imported": len(records), "left_out": {}}
    exported = run("records", "export", "--format", "metaschedule", "-o", tmp_path / "out")
    assert f"{len(records)} records left out (no-workload)" in exported.stderr
    assert (tmp_path / "out" / RECORDS).read_text() == ""


def test_what_cannot_be_imported_is_refused_whole(
    run: Any, farm: ReplayServer, client: Client, records: list[TuningRecord], tmp_path: Path
) -> None:
    def refused(*arguments: object, code: int = 2) -> str:
        text: str = parsed(run("records", "import", *arguments, "--keep-unknown", "--json", code=code))[
            "error"
        ]["code"]
        return text

    log = write(tmp_path / "log.jsonl", [*records, replace(records[0], target_key="t")])
    assert refused(tmp_path / "none.jsonl") == "no-file"
    assert refused(tmp_path, "--format", "json-lines") == "no-file"
    assert refused(tmp_path) == "no-file", "an ordinary folder"
    text = log.read_text()
    log.write_text(text[:-30])
    assert refused(log) == "records-incomplete"
    log.write_text("{}\n" + text)
    assert refused(log) == "invalid-record"
    folder = tmp_path / "database"
    folder.mkdir()
    (folder / WORKLOADS).write_text("")
    (folder / RECORDS).write_text("[0, [[], [1.0], null, null]]\n")
    assert refused(folder) == "database-mismatch"
    (folder / RECORDS).write_text("[0, [[], [1.")
    assert refused(folder) == "database-incomplete"
    assert list(client.records.all()) == []
    assert "name their folder" in run("records", "export", "--format", "metaschedule", code=2).stderr
