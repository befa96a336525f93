"""Write what the release at commit 7936aea leaves behind, into a folder: see README.md. Run it with that release's environment.

Usage::

    git worktree add /tmp/base 7936aea && make -C /tmp/base setup
    cd /tmp/base && PYTHONPATH=tests/support:examples .venv/bin/python PATH/make_copies.py FOLDER [--only NAME ...]
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import gzip
import inspect
import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from app_farm import Farm, farm_settings, make_farm
from onnx import TensorProto, helper, numpy_helper
from reported_farm import ReportingEngine
from tiny_convnet import build_tiny_convnet
from tunefarm_app.api_keys import create_api_key
from tunefarm_app.backup import back_up
from tunefarm_app.browser_sessions import start_session
from tunefarm_app.cancel_job import cancel_job
from tunefarm_app.device_enrolment import create_enrolment_token
from tunefarm_app.kernel_sources import source_of
from tunefarm_app.pause_job import pause_job
from tunefarm_app.replay_engine import ReplayEngine, Scenario, landscape_answer
from tunefarm_app.upload_part import UploadPart
from tunefarm_app.uploads import begin_upload
from tunefarm_tuning.config import Config
from tunefarm_tuning.task import TuningTask

import tunefarm
import tunefarm.client
import tunefarm_tuning
from tunefarm_tuning import (
    Budget,
    LocalBuilder,
    LocalRunner,
    MeasureOption,
    TimingOption,
    apply_history_best,
    extract_tasks,
    import_model,
    load_records,
    parse_target,
    tune,
)
from tunefarm_tuning import compile as compile_model
from tunefarm_tuning.measure import Failure, Outcome

TARGET = "llvm -mcpu=x86-64-v2 -num-cores=1"
"""Of the artifact: any x86-64 machine runs it."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write copies of what this release leaves behind.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=WRITERS, nargs="+", default=list(WRITERS), help="copies to write")
    parser.add_argument("--die-in", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.die_in is not None:
        die_in_a_round(args.die_in, json.loads(sys.stdin.read()))
    for name in args.only:
        WRITERS[name](args.folder)


def write_farm(copies: Path) -> None:
    """Write ``farm.zip``, a farm's database and store as a killed worker left them, ``farm.backup`` and ``farm.json``."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        farm = open_farm(folder)
        facts = fill(farm)
        farm.services.close()
        dying = subprocess.run(
            [sys.executable, __file__, "--die-in", str(folder), str(folder)],
            input=json.dumps(facts),
            text=True,
        )
        assert dying.returncode == 9, dying
        farm = open_farm(folder)
        facts["trials"] = {name: farm.job(job_id).trials for name, job_id in facts["jobs"].items()}
        facts["states"] = {name: farm.job(job_id).state.value for name, job_id in facts["jobs"].items()}
        facts["events"] = {name: farm.events(job_id) for name, job_id in facts["jobs"].items()}
        with farm.services.uow.read() as repos:
            in_flight = repos.steps.in_flight(facts["jobs"]["running"])
        assert in_flight, "the killed worker told what it was at"
        (copies / "farm.backup").unlink(missing_ok=True)
        back_up(f"sqlite:///{folder / 'farm.db'}", farm.services.blobs, copies / "farm.backup")
        farm.services.close()
        with sqlite3.connect(folder / "farm.db") as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            facts["rows"] = {
                table: connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
                for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
        write_json(copies / "farm.json", facts)
        with zipfile.ZipFile(copies / "farm.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            archive.write(folder / "farm.db", "farm.db")
            for path in sorted((folder / "store").rglob("*")):
                archive.write(path, path.relative_to(folder))


def open_farm(folder: Path, engine: ReplayEngine | None = None) -> Farm:
    return make_farm(
        farm_settings(folder, device_retry_sec=0.01, step_turn_sec=0.0), engine or ReportingEngine()
    )


def fill(farm: Farm) -> dict[str, Any]:
    """Give the farm one of everything; return what a test needs to find it."""
    services = farm.services
    device = farm.add_device("node-1", "pool")
    farm.note_peak(device, flops_per_sec=1e9)
    farm.add_device("node-2", "pool")
    farm.add_device("node-3", "spare")
    farm.newcomer("node-4", "others")  # awaits its calibration
    scenario = Scenario(tasks=2, nests=True, failing=0.2, seed=3)
    model = farm.ready_model(scenario)
    keys = {
        scope: create_api_key(services, name=scope, scopes=[scope]) for scope in ("read", "write", "admin")
    }
    session = start_session(services, keys["admin"][1])
    _, enrolment = create_enrolment_token(services)
    with services.uow.write() as repos:
        webhook = repos.webhooks.add(
            url="https://8.8.8.8/", kinds=["finished"], job_id=None, secret="whsec_eA=="
        )
    jobs = {"finished": farm.submit(model, trials=24, seed=1, tuner="xgb", key="once", device_key="pool")}
    farm.run_until_quiet()
    source_of(services, jobs["finished"].id, 0, ask=True)
    farm.run_until_quiet()
    odd_model = farm.ready_model(Scenario(tasks=1, unschedulable=(0,), seed=4))
    jobs["unschedulable"] = farm.submit(odd_model, trials=8, device_key="pool")
    farm.run_until_quiet()
    jobs["lost"] = farm.submit(model, trials=16, seed=2, tuner="random", device_key="spare")
    farm.with_engine(ReplayEngine(lost)).with_settings(max_losses=1).run()
    jobs["paused"] = farm.submit(model, trials=24, seed=5, tuner="ga", device_key="pool")
    jobs["cancelled"] = farm.submit(model, trials=24, seed=6, tuner="grid", device_key="pool")
    farm.inbox.messages.clear()
    pause_job(services, jobs["paused"].id)
    cancel_job(services, jobs["cancelled"].id)
    sent = Scenario(seed=9).to_bytes()
    upload = begin_upload(services, api_key_id=keys["admin"][0].id, name="half.onnx", size_bytes=len(sent))
    with UploadPart(services, upload.id, api_key_id=keys["admin"][0].id, offset_bytes=0) as part:
        part.write(sent[:8])
        part.end()
    failed_model = farm.upload(b"\x08 no network", name="bad.onnx")
    farm.run()
    jobs["running"] = farm.submit(model, trials=32, seed=7, tuner="xgb", device_key="pool")
    jobs["queued"] = farm.submit(model, trials=8, seed=8, tuner="random", priority=-5, device_key="pool")
    return {
        "jobs": {name: job.id for name, job in jobs.items()},
        "model": model.id,
        "failed_model": failed_model.id,
        "upload": {"id": upload.id, "rest": sent[8:].decode()},
        "webhook": webhook.id,
        "session": session,
        "enrolment_token": enrolment,
        "keys": {scope: text for scope, (_, text) in keys.items()},
    }


def lost(*_: object) -> Failure:
    return Failure(Outcome.INFRASTRUCTURE_ERROR, "the device is gone")


def die_in_a_round(folder: Path, facts: dict[str, Any]) -> None:
    """Work on the running job, and end as a killed worker does: in the middle of its third round."""
    measured = 0

    def answer(task: TuningTask, config: Config) -> Any:
        nonlocal measured
        measured += 1
        if measured == 20:
            os._exit(9)
        return landscape_answer(task, config)

    farm = open_farm(folder, ReplayEngine(answer))
    with farm.services.uow.read() as repos:
        (step,) = [
            step for step in repos.steps.for_job(facts["jobs"]["running"]) if step.state.value != "done"
        ]
    farm.inbox.messages.append(step.id)
    farm.run()
    raise AssertionError("nobody died")


def write_engine_files(copies: Path) -> None:
    """Write a search of a small network, and an artifact with what goes in and comes out."""
    (copies / "net.onnx").write_bytes(build_tiny_convnet(seed=1, channels=8).SerializeToString())
    write_search(copies, trials=32, tuner="evolutionary")
    with apply_history_best(copies / "records.jsonl") as history:
        model, target = import_model(copies / "net.onnx"), parse_target(TARGET)
        artifact = compile_model(model, target, output=copies / "net.tunefarm", baseline=False)
    inputs = np.random.default_rng(7).standard_normal((1, 3, 32, 32)).astype(np.float32)
    outputs = tunefarm.load(artifact.path)(inputs)["y"]
    np.savez(copies / "net.npz", x=inputs, y=outputs)
    assert history.coverage.hits, "no kernel is better than untuned: the machine was busy, try again"


def write_tails(copies: Path) -> None:
    """Write ``tails/``: a search in a space whose tiles may leave a tail."""
    folder = copies / "tails"
    folder.mkdir(exist_ok=True)
    weight = np.random.default_rng(3).standard_normal((48, 58)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "tails",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [197, 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [197, 58])],
        [numpy_helper.from_array(weight, "w")],
    )
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(network.SerializeToString())
    write_search(folder, trials=16, tuner="random")
    measured = [record for record in load_records(folder / "records.jsonl") if record.outcome is Outcome.OK]
    decisions = [decision for record in measured for decision in record.config.decisions]
    products = {math.prod(decision) for decision in decisions if isinstance(decision, tuple)}
    assert products - {197, 58, 48}, "no measured tile left a tail: try again"


def write_search(folder: Path, *, trials: int, tuner: str) -> None:
    """Write the tasks and config spaces of ``net.onnx`` and the record log of a search."""
    tasks = extract_tasks(import_model(folder / "net.onnx"), parse_target(TARGET))
    log = folder / "records.jsonl"
    log.unlink(missing_ok=True)
    with (
        LocalBuilder(workers=1) as builder,
        LocalRunner(timing=TimingOption(repeat=3, min_repeat_ms=2)) as runner,
    ):
        option = MeasureOption(builder=builder, runner=runner)
        tune(tasks, budget=Budget(trials=trials), measure_option=option, tuner=tuner, log_path=log)
        spaces = {task.workload.key: builder.config_space(task).to_json() for task in tasks}
    write_json(folder / "spaces.json", spaces)
    write_json(folder / "tasks.json", [task.to_json() for task in tasks])


def write_postgres(copies: Path) -> None:
    """Write ``farm.sql.gz``: the same farm in PostgreSQL (by a restore of its backup), as pg_dump writes it."""
    from private_postgres import started_postgres
    from tunefarm_app.blob_store import BlobStore
    from tunefarm_app.restore import restore

    server = started_postgres("fsync=off")
    try:
        with tempfile.TemporaryDirectory() as store:
            backup = shutil.copy(copies / "farm.backup", store)
            restore(Path(backup), database_url=server.url, store=BlobStore(Path(store) / "store"))
        dump = subprocess.run(
            [server._server.bin_path / "pg_dump", "--no-owner", "--no-privileges", "--inserts", server.url],
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    finally:
        server.close()
    lines = dump.splitlines(keepends=True)
    statements = b"".join(line for line in lines if not line.startswith((b"\\restrict", b"\\unrestrict")))
    (copies / "farm.sql.gz").write_bytes(gzip.compress(statements, mtime=0))


def write_client(copies: Path) -> None:
    """Write ``tunefarm.zip``: the client and the command, which Python imports from the archive."""
    package = Path(tunefarm.__file__).parent
    engine = Path(tunefarm_tuning.__file__).parent
    files = [
        *package.glob("*.py"),
        *(engine / name for name in ("__init__.py", "errors.py", "untrusted_text.py")),
    ]
    files += [path for room in ("client", "live", "cli") for path in (package / room).glob("*.py")]
    with zipfile.ZipFile(copies / "tunefarm.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files):
            archive.write(
                path, f"{path.relative_to(path.parents[1 if path.parent in (package, engine) else 2])}"
            )


def write_public_names(copies: Path) -> None:
    """Write ``public_names.json``: what users import, with its parameters, fields, members and public methods."""
    names = {
        package: {name: description(getattr(module, name)) for name in sorted(module.__all__)}
        for package, module in (
            ("tunefarm_tuning", tunefarm_tuning),
            ("tunefarm", tunefarm),
            ("tunefarm.client", tunefarm.client),
        )
    }
    for client in (tunefarm.client.Client, tunefarm.client.AsyncClient):  # what is reached through an object
        parts = vars(client("http://127.0.0.1:9", "key")).items()
        names[f"tunefarm.client.{client.__name__}"] = {
            name: {"public": description(type(part))["public"]}
            for name, part in sorted(parts)
            if not name.startswith("_") and "tunefarm" in type(part).__module__
        }
    text = json.dumps(names, indent=1, sort_keys=True)
    text = re.sub(r"\[[^][{}]*\]", lambda match: " ".join(match[0].split()), text)  # a list is a line
    (copies / "public_names.json").write_text(text + "\n", encoding="utf-8")


def description(value: Any) -> dict[str, Any]:
    """Return what a user of a class, a function or a constant may rely on."""
    if not inspect.isclass(value):
        return {"call": parameters(value)} if callable(value) else {}
    described: dict[str, Any] = {"public": {}}
    if issubclass(value, enum.Enum):
        described["members"] = {member.name: member.value for member in value}
    else:
        described["call"] = parameters(value)
    if dataclasses.is_dataclass(value):
        described["fields"] = [field.name for field in dataclasses.fields(value)]
    for name in sorted(
        {name for base in value.__mro__ if "tunefarm" in base.__module__ for name in vars(base)}
    ):
        if not name.startswith("_") and name not in described.get("members", {}):
            attribute = inspect.getattr_static(value, name)
            bound = isinstance(attribute, (staticmethod, classmethod))
            described["public"][name] = (
                parameters(getattr(value, name), bound=bound)
                if bound or inspect.isfunction(attribute)
                else None
            )
    return described


def parameters(function: Any, *, bound: bool = True) -> list[str]:
    """Return the parameters: ``x``, ``x?`` with a default, ``*`` before keywords, ``*x`` and ``**x`` for any more."""
    listed: list[str] = []
    for parameter in list(inspect.signature(function).parameters.values())[0 if bound else 1 :]:
        optional = "" if parameter.default is inspect.Parameter.empty else "?"
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in listed:
            listed.append("*")
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        listed.append(stars.get(parameter.kind, "") + parameter.name + optional)
    return listed


def write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


WRITERS = {
    "farm": write_farm,
    "postgres": write_postgres,
    "engine": write_engine_files,
    "tails": write_tails,
    "client": write_client,
    "names": write_public_names,
}

if __name__ == "__main__":
    main()
