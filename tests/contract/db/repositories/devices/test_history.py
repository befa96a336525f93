"""The history of devices: changes of state, calibrations, measurements, usage and vitals by the minute."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from tunefarm_db.repositories.devices.slots import COARSE_SEC, FINE_SEC, parts
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.unit_of_work import Repositories, UnitOfWork
from tunefarm_db.values import CalibrationOutcome, DeviceState, NewCalibration

LEASE_SEC = 21_600.0
AT = 1_800_000_000 // 28_800 * 28_800
"""The start of an interval of every span."""


def states(repos: Repositories, device_id: str) -> list[tuple[str, str]]:
    """Return the device's history, oldest first."""
    return [
        (change.event, change.state.value)
        for change in reversed(repos.device_history.changes(device_id).items)
    ]


def shift_lease(repos: Repositories, device_id: str, *, began_sec_ago: float) -> None:
    repos._connection.execute(
        text("UPDATE devices SET leased_at = leased_at - :sec WHERE id = :id"),
        {"sec": began_sec_ago, "id": device_id},
    )


def in_all(repos: Repositories, device_id: str) -> dict[str, float]:
    """Return the sums over a device's slots."""
    query = "SELECT sum(work_sec), sum(calibration_sec), sum(measured_sec), sum(beats) FROM device_slots WHERE device_id = :id"
    row = repos._connection.execute(text(query), {"id": device_id}).one()
    return dict(zip(("work", "calibration", "measured", "beats"), (total or 0 for total in row), strict=True))


def test_changes_are_kept_and_checks_that_go_well_are_not(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    came = [("join", "offline"), ("ready", "checking"), ("clean", "online")]
    with uow.write() as repos:
        assert states(repos, device.id) == came
        for _ in range(3):
            repos.devices.heartbeat(device.id)
            repos.calibrations.mark_overdue()
            repos.devices.apply(device.id, DeviceEvent.CLEAN)
        assert states(repos, device.id) == came
        repos.devices.apply(device.id, DeviceEvent.DOUBT, "a lost session")
        repos.devices.apply(device.id, DeviceEvent.FAIL, "wrong answer")
        repos.devices.apply(device.id, DeviceEvent.FAIL, "wrong answer again")
        repos.devices.apply(device.id, DeviceEvent.QUARANTINE, "it rattles", held=True)
        repos.devices.apply(device.id, DeviceEvent.RELEASE, "released", held=False)
        repos.devices.mark_stale(-1)
        more = states(repos, device.id)[3:]
        first = repos.device_history.changes(device.id, limit=2)
        rest = repos.device_history.changes(device.id, limit=50, cursor=first.next_cursor)
    assert more == [
        ("doubt", "checking"),
        ("fail", "quarantined"),
        ("quarantine", "quarantined"),
        ("release", "offline"),
    ]
    assert [change.reason for change in (*first.items, *rest.items)][:2] == ["released", "it rattles"]
    assert len(rest.items) == 5
    assert rest.next_cursor is None


def test_since_when_a_device_is_in_its_state(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    assert device.state_since is not None
    with uow.write() as repos:
        repos._connection.execute(text("UPDATE devices SET state_since = 5.0"))
        assert repos.devices.heartbeat(device.id).state_since == 5.0
        lease = repos.devices.lease("cpu", "step:x", LEASE_SEC)
        assert lease is not None
        assert (lease.device.state_since, lease.device.state) == (5.0, DeviceState.LEASED)
        assert lease.device.leased_at is not None
        drained = repos.devices.apply(device.id, DeviceEvent.DRAIN)
        assert drained.state_since is not None
        assert drained.state_since > 5.0
        repos._connection.execute(text("UPDATE devices SET state_since = 5.0"))
        assert repos.devices.apply(device.id, DeviceEvent.DRAIN, "again").state_since == 5.0


def test_a_device_that_is_silent_and_comes_back_says_so(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        repos.devices.mark_stale(-1)
        repos.devices.heartbeat(device.id)
        repos.devices.heartbeat(device.id, ready=False, reason="the server starts")
        assert states(repos, device.id)[3:] == [
            ("silent", "offline"),
            ("ready", "checking"),
            ("unready", "offline"),
        ]
        repos.devices.apply(device.id, DeviceEvent.REMOVE, "sold")
        assert states(repos, device.id)[-1] == ("remove", "removed")


def test_calibrations_are_kept_with_their_results(uow: UnitOfWork, seed: Any) -> None:
    device = seed.newcomer()
    clean = NewCalibration(outcome=CalibrationOutcome.CLEAN, key="k", time_sec=0.002, reference_sec=0.0021)
    broken = NewCalibration(outcome=CalibrationOutcome.BROKEN, reason="no answer")
    with uow.write() as repos:
        for fence, result in enumerate((clean, broken, None)):
            assert repos.calibrations.lease(device.id, fence, "calibration:w", LEASE_SEC) is not None
            repos.calibrations.finish(
                device.id, fence + 1, event=None, reason="", result=result, next_sec=600
            )
        page = repos.device_history.calibrations(device.id, limit=1)
        assert [
            (calibration.outcome, calibration.reason, calibration.time_sec) for calibration in page.items
        ] == [("broken", "no answer", None)]
        (last,) = repos.device_history.calibrations(device.id, cursor=page.next_cursor).items
        assert (last.outcome, last.time_sec, last.reference_sec, last.key) == ("clean", 0.002, 0.0021, "k")
        times = repos.device_history.calibration_times(device.id, most=9)
        assert [row[1:] for row in times] == [("clean", 0.002, 0.0021), ("broken", None, None)]
        assert len(repos.device_history.calibration_times(device.id, most=1)) == 1


def test_leases_count_as_what_they_were_for(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    device = seed.device()
    job = seed.job()
    with uow.write() as repos:
        began_at = repos.now()
        lease = repos.devices.lease("cpu", "step:x", LEASE_SEC)
        assert lease is not None
        shift_lease(repos, device.id, began_sec_ago=100.0)
        trials = [new_trial(ordinal=number, config_key=str(number), run_sec=20.0) for number in range(2)]
        repos.trials.add_many(job.id, 0, trials, device_id=device.id)
        assert repos.devices.release_lease(device.id, lease.fence)
        assert not repos.devices.release_lease(device.id, lease.fence)
        repos.devices.apply(device.id, DeviceEvent.DOUBT, "to be sure")
        assert repos.calibrations.lease(device.id, lease.fence, "calibration:w", LEASE_SEC) is not None
        shift_lease(repos, device.id, began_sec_ago=30.0)
        repos.calibrations.finish(
            device.id, lease.fence + 1, event=DeviceEvent.CLEAN, reason="", next_sec=600
        )
        counted = in_all(repos, device.id)
        test_sec = repos.now() - began_at
        assert 99.9 <= counted["work"] <= 100.1 + test_sec
        assert counted["measured"] == pytest.approx(40.0, abs=0.1)
        assert 29.9 <= counted["calibration"] <= 30.1 + test_sec
        measured_sec, outcomes = repos.counters.of_device(device.id)
        assert (measured_sec, outcomes) == (pytest.approx(40.0), {"ok": 2})
        assert repos.counters.of_device("dev_") == (0.0, {})


def test_a_lease_that_nobody_gave_back_counts_until_it_ran_out(
    uow: UnitOfWork, seed: Any, expire: Any
) -> None:
    device = seed.device()
    with uow.write() as repos:
        assert repos.devices.lease("cpu", "step:x", LEASE_SEC) is not None
        repos._connection.execute(
            text("UPDATE devices SET leased_at = leased_at - 1000, lease_until = leased_at - 400")
        )
        assert repos.devices.lease("cpu", "step:y", LEASE_SEC) is not None
        assert in_all(repos, device.id)["work"] == pytest.approx(600.0, abs=0.1)


def test_intervals_add_up_and_are_all_there(uow: UnitOfWork, seed: Any) -> None:
    device, other = seed.device(), seed.device("node-2")
    with uow.write() as repos:
        slots = repos.device_slots
        slots.use(device.id, AT + 30.0, AT + 150.0, work_sec=1.0)
        slots.use(device.id, AT + 30.0, AT + 150.0, measured_sec=0.5)
        slots.use(device.id, AT + 170.0, AT + 180.0, calibration_sec=1.0)
        slots.use(device.id, None, AT + 180.0, work_sec=1.0)
        slots.use(other.id, AT, AT + 900.0, work_sec=1.0)
        fine = slots.intervals(device.id, since=AT, until=AT + 250.0, width_sec=60)
        wide = slots.intervals(device.id, since=AT, until=AT + 1000.0, width_sec=900)
    assert [(interval.at - AT, interval.sec) for interval in fine] == [
        (0, 60),
        (60, 60),
        (120, 60),
        (180, 60),
        (240, 10),
    ]
    assert [interval.work_sec for interval in fine] == [30, 60, 30, 0, 0]
    assert [interval.measured_sec for interval in fine] == [15, 30, 15, 0, 0]
    assert [interval.calibration_sec for interval in fine] == [0, 0, 10, 0, 0]
    assert fine[0].load is None
    assert [(interval.work_sec, interval.calibration_sec, interval.sec) for interval in wide] == [
        (120, 10, 900),
        (0, 0, 100),
    ]


def test_signs_of_life_are_merged(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    signs = [
        {"load": 1.0, "temperature_celsius": 50.0, "clock_mhz": None},
        {"load": 3.0, "temperature_celsius": 70.0, "clock_mhz": None},
        {"load": None, "temperature_celsius": 60.0, "clock_mhz": 3000.0},
    ]
    with uow.write() as repos:
        for vitals in signs:
            repos.device_slots.beat(device.id, vitals)
        now = repos.now()
        since = int(now // 86_400) * 86_400 - 86_400
        shown = repos.device_slots.intervals(device.id, since=since, until=now, width_sec=86_400)
    beats = [interval for interval in shown if interval.beats]
    assert sum(interval.beats for interval in beats) == 3
    assert max(interval.temperature_celsius or 0.0 for interval in beats) == 70.0
    assert beats[-1].clock_mhz == pytest.approx(3000.0)
    assert 1.0 <= (beats[0].load or 0.0) <= 3.0


def test_old_slots_become_wide_and_go(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        slots, now = repos.device_slots, repos.now()
        old = int(now // COARSE_SEC) * COARSE_SEC - 10 * COARSE_SEC
        for _ in range(2):  # what comes late is added to what is wide already
            slots.use(device.id, float(old), old + 2.0 * COARSE_SEC, work_sec=0.5)
            slots.fold(device.id, 5.0 * COARSE_SEC)
        slots.use(device.id, now - FINE_SEC, now, work_sec=1.0)
        assert slots.fold(device.id, 5.0 * COARSE_SEC) == 0
        rows = repos._connection.execute(
            text("SELECT slot_at, width_sec, work_sec FROM device_slots ORDER BY slot_at")
        ).all()
        assert [tuple(row) for row in rows[:2]] == [
            (old, COARSE_SEC, pytest.approx(COARSE_SEC)),
            (old + COARSE_SEC, COARSE_SEC, pytest.approx(COARSE_SEC)),
        ]
        assert all(row[1] == FINE_SEC for row in rows[2:])
        assert slots.forget(device.id, 5.0 * COARSE_SEC) == 2
        assert in_all(repos, device.id)["work"] == pytest.approx(FINE_SEC, abs=0.1)


def test_what_was_measured_leads_to_the_job_and_the_kernel(
    uow: UnitOfWork, seed: Any, new_record: Any
) -> None:
    device, other = seed.device(), seed.device("node-2")
    with uow.write() as repos:
        ids = repos.records.add_many(
            [new_record(device_id=device.id, measured_at=float(number)) for number in range(3)]
        )
        repos.records.add_many([new_record(device_id=other.id)])
        page = repos.device_history.measured(device.id, limit=2)
        assert [record.id for record in page.items] == [ids[2], ids[1]]
        assert (page.items[0].job_id, page.items[0].position, page.items[0].outcome) == (None, None, "ok")
        rest = repos.device_history.measured(device.id, limit=2, cursor=page.next_cursor)
        assert [record.id for record in rest.items] == [ids[0]]


def test_history_is_forgotten_with_age(uow: UnitOfWork, seed: Any) -> None:
    device = seed.device()
    with uow.write() as repos:
        repos.device_history.add_calibration(device.id, NewCalibration(outcome=CalibrationOutcome.CLEAN))
        assert repos.device_history.forget(1000.0, limit=9) == 0
        for table in ("device_changes", "calibrations"):
            repos._connection.execute(text(f"UPDATE {table} SET created_at = created_at - 5000"))
        assert repos.device_history.forget(1000.0, limit=2) == 3
        assert repos.device_history.forget(1000.0, limit=2) == 1
        assert repos.device_history.changes(device.id).items == ()


def test_parts_of_a_time() -> None:
    assert parts(30.0, 150.0, 60) == [(0, 30.0), (60, 60.0), (120, 30.0)]
    assert parts(60.0, 120.0, 60) == [(60, 60.0)]
    assert parts(70.0, 70.0, 60) == []
    assert parts(70.0, 60.0, 60) == []
