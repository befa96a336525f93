"""The farm's checks, each with the fault that it detects."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from small_disk import small_disk
from sqlalchemy import text

from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.operations.check_results import Verdict, judge_clock, judge_versions, pinned
from tunefarm_app.operations.doctor import examine, examine_at_rest
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import BY_A_PERSON, StepKind
from tunefarm_tuning.process import sandbox
from tunefarm_tuning.target.linker import linker_command


def findings(farm: Any) -> dict[str, tuple[str, str]]:
    return {finding.check: (finding.verdict.value, finding.message) for finding in examine(farm.services)}


def run_sql(farm: Any, sql: str) -> None:
    with farm.services.uow.write() as repos:
        repos._connection.execute(text(sql))


def test_a_farm_that_is_well(farm: Any) -> None:
    farm.add_device()
    findings = examine(farm.services)
    assert [
        (finding.check, finding.verdict) for finding in findings if finding.verdict is not Verdict.OK
    ] == []
    assert all(finding.message for finding in findings)
    assert not any(finding.advice for finding in findings)


def test_whatever_is_wrong_has_an_advice(farm: Any) -> None:
    farm.inbox.up = False
    farm.add_device()
    run_sql(farm, "UPDATE devices SET state = 'offline', reason = 'not heard of', ready = 0")
    bad = {finding.check: finding for finding in examine(farm.services) if finding.verdict is not Verdict.OK}
    assert {name: finding.verdict.value for name, finding in bad.items()} == {
        "broker": "failed",
        "devices": "failed",
    }
    assert all(finding.advice for finding in bad.values())
    assert "dev-1 is offline (not heard of)" in bad["devices"].message


def test_a_farm_without_a_gateway_is_told_that_it_needs_one(farm: Any) -> None:
    assert findings(farm)["gateway"] == ("ok", "no gateway is needed: measurements are replayed")
    measuring = farm.with_settings(engine="tvm")
    (check,) = [finding for finding in examine(measuring.services) if finding.check == "gateway"]
    assert check.verdict is Verdict.FAILED
    assert "TUNEFARM_GATEWAY" in check.advice


def test_devices(farm: Any) -> None:
    assert findings(farm)["devices"] == ("failed", "there is none")
    farm.add_device("a")
    bad = farm.add_device("b")
    with farm.services.uow.write() as repos:
        repos.devices.apply(bad.id, DeviceEvent.QUARANTINE, "it smells burnt")
    verdict, message = findings(farm)["devices"]
    assert verdict == "warning"
    assert message == "1 online, 1 quarantined: b is quarantined (it smells burnt)"


def test_a_machine_that_cannot_link_for_a_device(
    farm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(farm)["linker"] == ("ok", "links for 0 devices")
    farm.add_device("here")
    assert findings(farm)["linker"] == ("ok", "links for 1 device")
    # A machine that has no linker for the RISC-V board: nothing is on its PATH.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    board = {"kind": "llvm", "mtriple": "riscv64-linux-gnu"}
    farm.newcomer("board", "riscv", target=board, device_model="board")
    linker_command.cache_clear()
    verdict, message = findings(farm)["linker"]
    assert verdict == "warning"
    assert "for board: no linker for riscv64" in message
    assert "binutils-riscv64-linux-gnu" in message
    linker_command.cache_clear()


@pytest.mark.parametrize(
    ("sessions", "verdict", "says"),
    [
        ({"user": "s", "agent": "root"}, "ok", "a runs its sessions as s, another user than the agent's"),
        (
            {"user": "me", "agent": "me", "why": "no such user"},
            "ok",
            "a runs its sessions as me, the agent's own user (no such user)",
        ),
        (
            {"user": "root", "agent": "root", "why": "told"},
            "warning",
            "a runs its sessions as root, the agent's own user (told)",
        ),
        ({"user": 7, "agent": ["x"]}, "ok", "another user"),
        ("nonsense", "ok", "no device says"),
    ],
)
def test_who_runs_sessions(farm: Any, sessions: Any, verdict: str, says: str) -> None:
    device = farm.add_device("a")
    heartbeat(farm.services, device.id, info={"agent": {"sessions": sessions}})
    assert findings(farm)["sessions"][0] == verdict
    assert says in findings(farm)["sessions"][1]


def test_a_draft_may_wait_for_as_long_as_workers_have_other_work(farm: Any) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(), trials=8)
    with farm.services.uow.write() as repos:
        repos.steps.add(StepKind.DRAFT, subject_id=job.id, model_id=job.model_id)
    run_sql(farm, "UPDATE steps SET not_before = not_before - 100 WHERE kind = 'draft'")
    assert findings(farm)["steps"][0] == "ok"


def test_steps_that_nobody_takes(farm: Any) -> None:
    model = farm.upload(Scenario(tasks=1))
    farm.run()
    farm.add_device()
    job = farm.submit(model, trials=8)
    assert findings(farm)["steps"][0] == "ok"
    run_sql(farm, "UPDATE steps SET not_before = not_before - 100 WHERE state = 'ready'")
    verdict, message = findings(farm)["steps"]
    assert verdict == "failed"
    assert "queue import" in message
    assert "no worker serves that queue" in message

    other = farm.submit(model, trials=8)
    with farm.services.uow.write() as repos:
        (step,) = repos.steps.for_job(other.id)
        repos.steps.claim(step.id, "w", 60.0)
    verdict, message = findings(farm)["steps"]
    assert verdict == "warning"
    assert message.endswith(": all workers are busy")

    run_sql(farm, "UPDATE steps SET lease_until = lease_until - 200 WHERE state = 'leased'")
    verdict, message = findings(farm)["steps"]
    assert verdict == "failed"
    assert "has not taken the step back" in message
    assert farm.job(job.id).error is None, "looking changes nothing"


def test_webhooks(farm: Any) -> None:
    assert findings(farm)["webhooks"] == ("ok", "there are none")
    with farm.services.uow.write() as repos:
        first, second, third = (
            repos.webhooks.add(url="https://8.8.8.8/password", kinds=[], job_id=None, secret="whsec_eA==")
            for _ in range(3)
        )
        repos.deliveries.queue_test(first.id)
        repos.webhooks.failed(second.id)
    assert findings(farm)["webhooks"] == ("ok", "3 webhooks, 1 deliveries waiting")
    run_sql(farm, "UPDATE webhooks SET failing_since = failing_since - 1200 WHERE failures > 0")
    with farm.services.uow.write() as repos:
        repos.webhooks.disable(first.id, BY_A_PERSON)
        repos.webhooks.disable(third.id, "the receiver answered 410, so it gets no more events")
    verdict, message = findings(farm)["webhooks"]
    assert verdict == "warning"
    assert message.split("; ") == [
        f"{second.id} has failed for 20 min, 1 attempt in a row",
        f"{third.id} is disabled: the receiver answered 410, so it gets no more events",
    ]
    with farm.services.uow.write() as repos:
        repos.deliveries.queue_test(second.id)
    run_sql(farm, "UPDATE webhook_deliveries SET not_before = not_before - 300 WHERE state = 'pending'")
    verdict, message = findings(farm)["webhooks"]
    assert (verdict, message) == (
        "failed",
        f"a delivery to {second.id} has been due for 300 s, and no process sends it",
    )
    assert not any("password" in finding.message for finding in examine(farm.services))


def test_a_store_that_cannot_be_written(farm: Any) -> None:
    farm.services.settings.store_dir.write_text("a file where the folder should be")
    assert findings(farm)["store"][0] == "failed"


def test_a_full_disk(farm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefarm_app.operations.doctor.FREE_NOTHING_BYTES", 1 << 60)
    assert findings(farm)["store"][0] == "failed"
    assert findings(farm)["database space"][0] == "failed"
    monkeypatch.setattr("tunefarm_app.operations.doctor.FREE_NOTHING_BYTES", 1)
    monkeypatch.setattr("tunefarm_app.operations.doctor.FREE_LITTLE_BYTES", 1 << 60)
    assert findings(farm)["store"][0] == "ok", "as long as a tenth of the disk is free"
    monkeypatch.setattr("tunefarm_app.operations.doctor.FREE_LITTLE_SHARE", 1.0)
    assert findings(farm)["store"][0] == "warning"


def test_a_schema_of_another_time(farm: Any) -> None:
    schema.downgrade(farm.services.settings.database_url.get_secret_value(), "0003")
    by_check = {finding.check: finding for finding in examine_at_rest(farm.services)}
    assert by_check["database"].verdict is Verdict.FAILED
    assert "tunefarm db upgrade" in by_check["database"].advice


def test_a_database_that_is_away(farm: Any, tmp_path: Path) -> None:
    away = SecretStr("postgresql://nobody@127.0.0.1:1/none")
    farm = farm.with_settings(database_url=away)
    services = farm.services
    object.__setattr__(services, "uow", UnitOfWork(make_engine(away.get_secret_value())))
    by_check = {finding.check: finding for finding in examine(services)}
    assert {name for name, finding in by_check.items() if finding.verdict is Verdict.FAILED} == {
        *("database", "devices", "steps", "webhooks", "clock"),
    }
    assert "See the check `database`" in by_check["steps"].advice
    assert by_check["broker"].verdict is Verdict.OK


def test_clocks() -> None:
    assert judge_clock("clock", 2.0, "the server's").verdict is Verdict.OK
    fast = judge_clock("clock", 90.0, "the server's")
    assert fast.verdict is Verdict.WARNING
    assert fast.message == "the server's clock is 90 s ahead of this machine's"
    assert "behind" in judge_clock("clock", -90.0, "the server's").message


@pytest.mark.parametrize(
    ("mode", "landlock", "seccomp", "verdict"),
    [
        ("best-effort", 7, True, "ok"),
        ("required", 6, True, "ok"),
        ("best-effort", 5, True, "warning"),
        ("best-effort", 7, False, "warning"),
        ("required", 0, True, "failed"),
        ("off", 7, True, "warning"),
    ],
)
def test_what_confines_children(
    farm: Any, monkeypatch: pytest.MonkeyPatch, *, mode: str, landlock: int, seccomp: bool, verdict: str
) -> None:
    monkeypatch.setenv("TUNEFARM_SANDBOX", mode)
    monkeypatch.setattr(sandbox, "available_sandbox", lambda: (landlock, seccomp))
    judged, message = findings(farm)["sandbox"]
    assert judged == verdict
    assert message.startswith(mode)


def test_which_runtimes_are_here(farm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("openvino", "ai_edge_litert"):
        monkeypatch.setitem(sys.modules, package, None)
    verdict, message = findings(farm)["baselines"]
    assert verdict == "ok", "nobody needs them"
    assert message.startswith(
        "onnxruntime always; openvino and ai-edge-litert not installed here (to time them, pip install"
    )


def test_versions(farm: Any) -> None:
    pins = pinned()
    assert set(pins) == {"apache-tvm", "apache-tvm-ffi"}
    assert judge_versions({"here": dict(pins), "client": {}}).verdict is Verdict.OK
    farm.add_device(info={"versions": {**pins, "apache-tvm-ffi": "0.1.15"}})
    verdict, message = findings(farm)["versions"]
    assert verdict == "failed"
    assert message == "dev-1 has apache-tvm-ffi 0.1.15"
    assert judge_versions({"here": {"tunefarm": "0.0.1"}}).verdict is Verdict.WARNING


def test_a_disk_that_takes_nothing_more(farm: Any, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        if disk is None:
            pytest.skip("needs the right to mount a small file system")
        full_farm = farm.with_settings(store_dir=disk.path)
        full = replace(full_farm.services, blobs=BlobStore(disk.path))
        disk.fill()
        (store,) = [finding for finding in examine(full) if finding.check == "store"]
        assert store.verdict is Verdict.FAILED
        assert "No space left on device" in store.message
        assert store.advice.startswith("Free space")
        disk.make_room()
        (store,) = [finding for finding in examine(full) if finding.check == "store"]
        assert "MB free" in store.message


def test_without_a_database_the_rest_is_looked_at(farm: Any, tmp_path: Path) -> None:
    away = replace(farm.services, uow=UnitOfWork(make_engine(f"sqlite:///{tmp_path}/no/such/folder/farm.db")))
    verdicts = {finding.check: finding.verdict.value for finding in examine(away)}
    assert verdicts["database"] == verdicts["devices"] == verdicts["steps"] == "failed"
    assert verdicts["gateway"] == verdicts["versions"] == verdicts["store"] == "ok"


def test_advice_is_about_the_states_that_there_are(farm: Any) -> None:
    farm.add_device()
    words = {
        "offline": "agent",
        "checking": "--queues tune",
        "quarantined": "a clean calibration releases it",
        "draining": "release",
    }
    for state, word in words.items():
        run_sql(farm, f"UPDATE devices SET state = '{state}'")
        (devices,) = [finding for finding in examine(farm.services) if finding.check == "devices"]
        assert devices.advice.startswith(f"{state}: ")
        assert word in devices.advice
        assert [other for other in words if f"{other}: " in devices.advice] == [state]


def test_a_device_that_became_slower(farm: Any) -> None:
    device = farm.add_device()

    def verdict_of(**calibration: float) -> tuple[str, str]:
        with farm.services.uow.write() as repos:
            repos.devices.apply(device.id, DeviceEvent.DOUBT, "to be sure")
            now = repos.devices.get(device.id)
            lease = repos.calibrations.lease(device.id, now.fence, "w", 60.0)
            repos.calibrations.finish(
                device.id,
                lease.fence,
                event=DeviceEvent.CLEAN,
                reason="",
                calibration={"key": "k", "at": 0.0, **calibration},
                next_sec=60.0,
            )
        return findings(farm)["devices"]

    assert verdict_of(time_sec=1.2, reference_sec=1.0) == ("ok", "1 online")
    verdict, message = verdict_of(time_sec=1.4, reference_sec=1.0)
    assert (verdict, message) == ("warning", "1 online: dev-1 is 1.4 times slower than before")
    cores = {"all_cores_sec": 3.0, "all_cores_reference_sec": 1.0}
    assert verdict_of(time_sec=1.0, reference_sec=1.0, **cores)[1].endswith(
        "3.0 times slower than before (all cores at work)"
    )


def test_unsigned_artifacts_of_a_farm_that_requires_signatures(farm: Any, tmp_path: Path) -> None:
    farm.add_device()
    finished = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=8)
    farm.run()
    assert farm.job(finished.id).state.value == "succeeded"
    assert "not signed" in findings(farm)["signatures"][1]
    strict = farm.with_settings(signing_key=tmp_path / "key.pem", require_signatures=True)
    verdict, message = findings(strict)["signatures"]
    assert (verdict, "1 artifact without a statement" in message) == ("warning", True)
    lax = farm.with_settings(signing_key=tmp_path / "key.pem")
    verdict, message = findings(lax)["signatures"]
    assert (verdict, "1 artifact has none" in message) == ("ok", True)
    run_sql(farm, "UPDATE artifacts SET envelope = '{}'")
    assert findings(strict)["signatures"] == ("ok", "required, and every artifact has its statement")
