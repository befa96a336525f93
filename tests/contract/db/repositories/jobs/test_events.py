"""Events of jobs by what they say, on both databases."""

from __future__ import annotations

from typing import Any

from tunefarm_db.unit_of_work import UnitOfWork


def test_events_are_selected_by_values_of_their_data(uow: UnitOfWork, seed: Any) -> None:
    job, other = seed.job(seed.model()), seed.job(seed.model(sha256="b" * 64))
    wanted = {"device_id": "dev_1", "step_id": "stp_1"}
    with uow.write() as repos:
        first = repos.events.add(job.id, "device-trouble", {**wanted, "message": "it is gone"})
        repos.events.add(job.id, "device-trouble", {**wanted, "device_id": "dev_2"})
        repos.events.add(job.id, "device-trouble", {"device_id": "dev_1"})  # as older releases wrote them
        repos.events.add(job.id, "retry", wanted)
        repos.events.add(other.id, "device-trouble", wanted)
        second = repos.events.add(job.id, "device-trouble", wanted)
    with uow.read() as repos:
        assert repos.events.with_data(job.id, "device-trouble", wanted) == (first, second)
