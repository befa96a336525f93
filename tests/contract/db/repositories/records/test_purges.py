"""Purges of records of a device, or of an import, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.unit_of_work import UnitOfWork

PLATFORM = {"target_key": "llvm", "device_model": "cpu-model", "toolchain": "tvm-1"}


def test_what_rests_on_a_devices_records_goes_with_them(
    uow: UnitOfWork, seed: Any, new_record: Any, new_trial: Any
) -> None:
    liar, honest = seed.device("liar"), seed.device("honest")
    job = seed.job()
    with uow.write() as repos:
        ids = repos.records.add_many(
            [
                new_record(cost_sec=1e-9, device_id=liar.id, job_id=job.id),
                new_record("w2", cost_sec=2e-3, device_id=honest.id),
                new_record("w2", cost_sec=None, device_id=liar.id, job_id=job.id),
            ]
        )
        repos.trials.add_many(job.id, 1, [new_trial(0, record_id=ids[0])], device_id=liar.id)
        repos.sources.begin("s", record_id=ids[0], target={"kind": "llvm"})
        repos.findings.store({"f": {"x": 1}})
    with uow.write() as repos:
        purged = repos.purges.purge_device(liar.id)
    assert (purged.records, purged.measured_by, purged.used_by) == (2, (job.id,), ())
    with uow.read() as repos:
        assert [record.id for record in repos.records.query(RecordFilter()).items] == [ids[1]]
        assert repos.sources.find("s") is None
        assert repos.findings.find("f", age_sec=100.0) is None
        assert repos.trials.known(job.id, 0, ["[0,[0]]"]), "the job's trials stay"


@pytest.mark.parametrize("confirmed_by_another", [False, True])
def test_a_config_counts_by_what_is_left_of_it(
    uow: UnitOfWork, seed: Any, new_record: Any, *, confirmed_by_another: bool
) -> None:
    liar, honest = seed.device("liar"), seed.device("honest")
    with uow.write() as repos:
        repos.records.add_many([new_record(cost_sec=3e-3, device_id=honest.id)])
        if confirmed_by_another:
            repos.records.add_many([new_record(cost_sec=4e-3, device_id=honest.id, confirmed=True)])
        repos.records.add_many([new_record(cost_sec=1e-9, device_id=liar.id, confirmed=True)])
        other = new_record(cost_sec=5e-3, device_id=honest.id, config=[0, [[8, 1], 3]])
        repos.records.add_many([other])
        assert repos.records.best(["w1"], **PLATFORM)["w1"].cost_sec == 1e-9
        repos.purges.purge_device(liar.id)
        assert repos.records.best(["w1"], **PLATFORM)["w1"].cost_sec == (
            4e-3 if confirmed_by_another else 3e-3
        )
        standing = [record for record in repos.records.query().items if not record.superseded]
    assert len(standing) == 2


def test_a_devices_peak_goes(uow: UnitOfWork, seed: Any) -> None:
    liar, honest = seed.device("liar"), seed.device("honest")
    with uow.write() as repos:
        for device in (liar, honest):
            repos.devices.apply(device.id, DeviceEvent.CLEAN)
        for _ in range(2):
            lease = repos.devices.lease("cpu", "w", 60.0)
            assert lease is not None
            assert repos.peaks.put(lease.device.id, lease.fence, "k", {})
        repos.purges.purge_device(liar.id)
        assert repos.peaks.get(liar.id) is None
        assert repos.peaks.get(honest.id) is not None


def test_a_device_without_records_loses_nothing(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        repos.records.add_many([new_record()])
        assert repos.purges.purge_device("dev_none").records == 0
        assert len(repos.records.query().items) == 1


def test_of_a_device_the_records_of_one_certificate_or_ticket_go(
    uow: UnitOfWork, seed: Any, new_record: Any
) -> None:
    device, other = seed.device("liar"), seed.device("honest")
    stolen, renewed = "0a" * 32, "0b" * 32
    with uow.write() as repos:
        ids = repos.records.add_many(
            [
                new_record(device_id=device.id, certificate_sha256=stolen, ticket_jti="t1"),
                new_record(device_id=device.id, certificate_sha256=stolen, ticket_jti="t2"),
                new_record(device_id=device.id, certificate_sha256=renewed, ticket_jti="t3"),
                new_record(device_id=device.id),
                new_record(device_id=other.id, certificate_sha256=stolen, ticket_jti="t1"),
            ]
        )
        repos.devices.apply(device.id, DeviceEvent.CLEAN)
        lease = repos.devices.lease("cpu", "w", 60.0)
        assert lease is not None
        assert repos.peaks.put(device.id, lease.fence, "k", {})
    with uow.write() as repos:
        assert repos.purges.purge_device(device.id, ticket_jti="t3", certificate_sha256=stolen).records == 0
        assert repos.purges.purge_device(device.id, ticket_jti="t1").records == 1
        assert repos.purges.purge_device(device.id, certificate_sha256=stolen).records == 1
        left = {record.id: record for record in repos.records.query().items}
        assert set(left) == set(ids[2:])
        assert (left[ids[2]].certificate_sha256, left[ids[2]].ticket_jti) == (renewed, "t3")
        assert left[ids[3]].certificate_sha256 is left[ids[3]].ticket_jti is None
        assert repos.peaks.get(device.id) is not None


def test_what_a_key_imported_goes_and_what_it_hid_counts_again(uow: UnitOfWork, new_record: Any) -> None:
    with uow.write() as repos:
        honest, other = repos.records.add_many(
            [new_record(cost_sec=3e-3), new_record(cost_sec=9e-3, owner="key-of-another")]
        )
        hiding = new_record(cost_sec=5e-2, confirmed=True, owner="liar")
        false = new_record(cost_sec=1e-9, config=[0, [[8, 1], 3]], owner="liar")
        repos.records.add_many([hiding, false])
        repos.findings.store({"f": {"x": 1}})
        assert repos.records.best(["w1"], **PLATFORM)["w1"].cost_sec == 1e-9
    with uow.write() as repos:
        assert repos.purges.purge_imports("nobody").records == 0
        assert repos.purges.purge_imports("liar").records == 2
    with uow.read() as repos:
        left = {record.id: record.superseded for record in repos.records.query().items}
        assert left == {honest: False, other: False}
        assert repos.records.best(["w1"], **PLATFORM)["w1"].id == honest
        assert repos.findings.find("f", age_sec=100.0) is not None, "a compile found it out on a device"
