"""Children that build and measure wait for their owner's next step, serve nobody else, and take no more memory than there is."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tunefarm_app.engines.kept_children import KeptChildren, machine_memory_bytes
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo

DEVICE = RemoteDevice(
    tracker_host="127.0.0.1", tracker_port=9, key="dev", info=DeviceInfo(model="m", num_cores=1, name="d")
)


@pytest.mark.parametrize(("gigabytes", "owners"), [(1, 1), (8, 2), (1000, 3)])
def test_the_last_few_owners_have_their_children_kept(gigabytes: int, owners: int) -> None:
    with closing(KeptChildren(1, 600.0, memory_bytes=gigabytes << 30)) as kept:

        def take(owner: str) -> tuple[object, object]:
            kept.serve(owner)
            return kept.take(DEVICE)

        first = {owner: take(owner) for owner in "abc"[:owners]}
        assert len({builder for builder, _ in first.values()}) == owners
        assert len({runner for _, runner in first.values()}) == owners
        assert {owner: take(owner) for owner in first} == first
        take("another")  # in place of the one that waits longest
        kept_owners = [owner for owner in reversed(first) if take(owner) == first[owner]]
        assert kept_owners == list(reversed(first))[: owners - 1]


def test_children_of_an_owner_without_steps_end_while_others_work() -> None:
    with closing(KeptChildren(1, 0.2, memory_bytes=1 << 40)) as kept:
        kept.serve("a")
        former = kept.take(DEVICE)
        time.sleep(0.3)
        kept.serve("b")
        kept.take(DEVICE)
        kept.serve("a")
        assert kept.take(DEVICE) != former


def test_after_its_end_new_ones_are_started() -> None:
    with closing(KeptChildren(1, 600.0, memory_bytes=1 << 40)) as kept:
        former = kept.take(DEVICE)
        kept.close()
        assert kept.take(DEVICE) != former


def test_a_machine_has_memory() -> None:
    assert machine_memory_bytes() > 1 << 28
