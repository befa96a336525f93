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
from tunefarm_app.storage.rows import space_row
from tunefarm_db.values import NewRecord
from tunefarm_db.values import Workload as WorkloadRow
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.records.metaschedule import RECORDS, WORKLOADS
from tunefarm_tuning.records.record import TuningRecord, load_records
from tunefarm_tuning.space.config import Config
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


@pytest.mark.exhaustive
@pytest.mark.usefixtures("with_workload")
def test_records_go_to_metaschedule_and_come_back(
    run: Any, client: Client, records: list[TuningRecord], tmp_path: Path
) -> None:
    log = write(tmp_path / "log.jsonl", records)
    assert parsed(run("records", "import", log, "--json")) == {
        "imported": len(records),
        "left_out": {},
        "unchecked": len(records),
    }
    again = run("records", "import", log)
    assert "of kernels that no job has tuned here" not in again.stderr
    assert "0 records imported" in again.stdout
    assert f"{len(records)} records left out (on-record): the farm has them already" in again.stderr

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
    assert back == {"imported": 0, "left_out": {"on-record": exported["records"]}, "unchecked": 0}
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
    assert kept == {"imported": len(records), "left_out": {}, "unchecked": len(records)}
    exported = run("records", "export", "--format", "metaschedule", "-o", tmp_path / "out")
    assert f"{len(records)} records left out (no-workload)" in exported.stderr
    assert (tmp_path / "out" / RECORDS).read_text() == ""


@pytest.mark.usefixtures("with_workload")
def test_configs_are_compared_with_the_kernels_space(
    run: Any, farm: ReplayServer, client: Client, records: list[TuningRecord], tmp_path: Path
) -> None:
    task = sample_task("matmul", n=64, target=TARGET)
    with LocalBuilder(workers=1) as builder:
        space = builder.config_space(task)
    log = write(tmp_path / "log.jsonl", records)
    assert "of kernels that no job has tuned here" in run("records", "import", log).stderr
    with farm.services.uow.write() as repos:
        repos.spaces.put(space_row(space, task, toolchain_key()))
    sketch, decisions = records[0].config.to_json()
    tile = next(number for number, decision in enumerate(decisions) if isinstance(decision, list))
    wrong = [*decisions[:tile], [3] * len(decisions[tile]), *decisions[tile + 1 :]]
    for config, reason in (
        (Config.from_json([99, decisions]), "it is of sketch 99"),
        (Config.from_json([sketch, decisions[:-1]]), f"it has {len(decisions) - 1} decisions"),
        (Config.from_json([sketch, wrong]), f"decision {tile + 1} is (3, 3"),
    ):
        write(log, [*records, replace(records[0], config=config)])
        refused = parsed(run("records", "import", log, "--json", code=2))["error"]
        assert refused["code"] == "invalid-record"
        assert (
            f"line {len(records) + 1}: the config is not in its kernel's config space: {reason}"
            in refused["message"]
        )
    assert len(list(client.records.all())) == len(records)
    newer = replace(records[0], device_model="newer")
    write(log, [newer, replace(newer, space_key="another")])
    mixed = run("records", "import", log, "--json")
    assert parsed(mixed) == {"imported": 1, "left_out": {"space-changed": 1}, "unchecked": 0}
    assert "(space-changed): its config space differs from its kernel's config space here" in mixed.stderr


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
    told = run("records", "import", log, code=2).stderr
    assert f"error: {log}, read as records in JSON lines: line 1: " in told
    folder = tmp_path / "database"
    folder.mkdir()
    (folder / WORKLOADS).write_text("")
    (folder / RECORDS).write_text("[0, [[], [1.0], null, null]]\n")
    assert refused(folder) == "database-mismatch"
    (folder / RECORDS).write_text("[0, [[], [1.")
    assert refused(folder) == "database-incomplete"
    assert list(client.records.all()) == []
    assert "name their folder" in run("records", "export", "--format", "metaschedule", code=2).stderr


def test_a_devices_records_are_purged(run: Any, farm: Any, client: Client) -> None:
    farm.add_device("liar")
    device = next(device for device in client.devices.list() if device.name == "liar")
    record = NewRecord(
        workload_key="w",
        target_key="llvm",
        device_model="replay-cpu",
        toolchain="t",
        space_key="s",
        config=[0, []],
        outcome="ok",
        cost_sec=1e-9,
        samples_sec=[1e-9],
        build_sec=0.1,
        measured_at=1.0,
        device_id=device.id,
    )
    with farm.services.uow.write() as repos:
        repos.records.add_many([record, record, replace(record, certificate_sha256="0a" * 32)])
    client.devices.remove(device.id)
    assert "liar" in run("records", "purge", "--device", "liar", code=3).stderr
    by_certificate = ("records", "purge", "--device", device.id, "--certificate", "0a" * 32)
    assert "0 records deleted" in run(*by_certificate, "--ticket", "t1").stdout
    assert "1 record deleted" in run(*by_certificate).stdout
    assert "2 records deleted" in run("records", "purge", "--device", device.id).stdout
    none = parsed(run("records", "purge", "--device", device.id, "--json"))
    assert none == {"records": 0, "measured_by": [], "used_by": []}
    assert "0 records deleted" in run("records", "purge", "--key", client.keys.list()[0].id).stdout
    for wrong in ((), ("--key", "k", "--device", "d"), ("--key", "k", "--ticket", "t")):
        assert "name a --device" in run("records", "purge", *wrong, code=2).stderr
    token = run("device", "token", "--guest", "--device-key", "guests").stdout.strip()
    assert token.startswith("tfk_")


def test_an_outcome_that_does_not_exist_is_refused(run: Any, farm: Any) -> None:
    told = run("records", "list", "--outcome", "crashed", code=2).stderr
    assert "outcome must be 'ok', 'instantiation-error', " in told
    run("records", "list", "--outcome", "run-crash")
