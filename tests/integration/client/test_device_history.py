"""The history of a device, with both kinds of client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import Client, NotFoundError


@pytest.mark.matrix(every=2, each_value=False)
def test_the_history_of_a_device(farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx", tasks=2, failing=0.3), trials=16)
    job.wait(poll_sec=0.05, timeout_sec=120)
    (device,) = client.devices.list()
    assert device.state_since is not None
    assert (device.work, device.job_id) == (None, None)

    for span, count in (("hour", 61), ("month", 91)):
        intervals = client.devices.intervals(device.id, span=span)
        assert len(intervals) == count
        assert (
            sum(interval.work_sec for interval in intervals)
            >= sum(interval.measured_sec for interval in intervals)
            > 0.0
        )
        assert all(0.0 <= interval.used <= 1.0 for interval in intervals)

    totals = client.devices.totals(device.id)
    assert totals.trials == sum(totals.outcomes.values()) == 16
    assert totals.outcomes["ok"] > 0

    first = client.devices.records(device.id, limit=10)
    rest = client.devices.records(device.id, cursor=first.next_cursor)
    assert len(first) + len(rest) == 16
    assert {record.job_id for record in (*first, *rest)} == {job.id}
    assert {record.position for record in (*first, *rest)} == {0, 1}
    assert first[0].measured_at >= rest[-1].measured_at

    assert len(client.devices.calibrations(device.id)) == 0
    assert [change.state for change in client.devices.changes(device.id)] == ["online", "checking", "offline"]
    with pytest.raises(NotFoundError):
        client.devices.totals("dev_nobody")
