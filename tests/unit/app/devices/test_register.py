from __future__ import annotations

import pytest

from tunefarm_app.devices.register import heartbeat
from tunefarm_db.values import DeviceState
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError


def test_registering_again_renews(farm) -> None:
    first = farm.add_device(info={"cores": 2})
    again = farm.add_device(info={"cores": 4}, rpc_key="other")
    assert again.id == first.id
    assert (again.info, again.rpc_key) == ({"cores": 4}, "other")


def test_devices_of_a_pool_are_alike(farm) -> None:
    farm.add_device("a")
    farm.add_device("b")
    for changes, differing in (
        (
            {"device_model": "other"},
            "whose model is .*; the model of c is other. Choose another pool, .*--device-key",
        ),
        (
            {"target": {"kind": "llvm", "num-cores": 9}},
            "whose target is llvm.*; the target of c is llvm -num-cores=9",
        ),
    ):
        with pytest.raises(ConflictError, match=differing) as caught:
            farm.add_device("c", **changes)
        assert caught.value.code == "device-pool-mismatch"
    farm.add_device("c", "another-pool", device_model="other")
    with farm.services.uow.write() as repos:
        repos.devices.mark_stale(-1)
    farm.add_device("a", device_model="new-machine")  # the others are gone: the pool may change


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "a b"},
        {"device_key": "x" * 101},
        {"rpc_key": "a\nb"},
        {"target": {"kind": "quantum"}},
    ],
)
def test_what_makes_no_sense_is_refused(farm, changes) -> None:
    with pytest.raises(InvalidInputError):
        farm.add_device(**changes)


@pytest.mark.parametrize(
    ("info", "why"),
    [
        ({"cpu": "A" * 70_000}, "has 70011 bytes as JSON; 65536 are enough"),
        ({"load": float("nan")}, "JSON in UTF-8 cannot hold"),
        ({"cpu": "\ud800"}, "JSON in UTF-8 cannot hold"),
        ({"cpu": ["a\0"]}, "a NUL character"),
        ({"cores": 10**5000}, "JSON in UTF-8 cannot hold"),
    ],
)
def test_what_an_agent_tells_of_its_machine_is_short_and_can_be_stored(farm, info, why: str) -> None:
    """Each heartbeat is stored, and returned by each list of devices."""
    device = farm.add_device()
    for tell in (lambda: farm.add_device(info=info), lambda: heartbeat(farm.services, device.id, info=info)):
        with pytest.raises(InvalidInputError, match=why) as caught:
            tell()
        assert caught.value.code == "invalid-device"
    assert heartbeat(farm.services, device.id, info={"cores": 8, "cpu": "é"}).info["cores"] == 8
    path = {"path": "C:\\u0000x"}  # a backslash and five letters
    assert heartbeat(farm.services, device.id, info=path).info == path


def test_heartbeats(farm) -> None:
    device = farm.add_device()
    away = heartbeat(farm.services, device.id, ready=False, reason="no\x1b tracker")
    assert (away.state, away.reason) == (DeviceState.OFFLINE, "no\\x1b tracker")
    assert heartbeat(farm.services, device.id).state is DeviceState.ONLINE
    with pytest.raises(NotFoundError):
        heartbeat(farm.services, device.id, device_name="another")
    with pytest.raises(NotFoundError):
        heartbeat(farm.services, "dev_nope")
