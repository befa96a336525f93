"""Thinning a device's history while its abandoned last lease is counted, on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from app_farm import Farm, farm_settings, make_farm
from sqlalchemy import text
from waiting import wait_until

from tunefarm_app.devices.history import thin_device_history

DAY_SEC = 86_400.0


@pytest.fixture
def farm(new_postgres_url: Callable[[], str], tmp_path: Path) -> Iterator[Farm]:
    farm = make_farm(farm_settings(tmp_path, database_url=new_postgres_url()))
    yield farm
    farm.services.close()


def somebody_waits(farm: Farm) -> bool:
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with farm.services.uow.engine.begin() as connection:
        return bool(connection.execute(query).scalar_one() > 0)


def test_neither_waits_for_the_other_for_ever(farm: Farm) -> None:
    device = farm.add_device()
    errors: list[Exception] = []

    def thin() -> None:
        try:
            thin_device_history(farm.services)
        except Exception as error:
            errors.append(error)

    thinning = threading.Thread(target=thin, daemon=True)
    with farm.services.uow.write() as repos:
        began_at = (repos.now() - 5 * DAY_SEC) // 900 * 900
        repos.device_slots.use(device.id, began_at, began_at + 600.0, work_sec=1.0)
    with farm.services.uow.write() as repos:
        # As whoever takes the device does, before the old lease is counted.
        repos._connection.execute(text("SELECT id FROM devices FOR UPDATE"))
        thinning.start()
        wait_until(lambda: somebody_waits(farm), "a lock to be waited for")
        repos.device_slots.use(device.id, began_at, began_at + 300.0, work_sec=1.0)
    thinning.join(300)
    assert errors == []
    with farm.services.uow.read() as repos:
        (shown,) = repos.device_slots.intervals(
            device.id, since=int(began_at), until=began_at + 800.0, width_sec=900
        )
    assert shown.work_sec == pytest.approx(900.0)
