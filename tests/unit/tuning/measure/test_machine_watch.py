"""What else a machine does: its counters, and what they say of a timing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefarm_tuning.measure.machine_watch import (
    MachineState,
    Watched,
    disturbance_of,
    loop_slowdown,
    machine_state,
    slowdown,
    yardstick_loop_sec,
)


def stretch(others_sec: float, *, wall_sec: float = 1.0, cores: int = 2) -> Watched:
    return Watched(
        wall_sec=wall_sec, cores=cores, others_sec=others_sec, steal_sec=0.0, switches=0, stalled_sec=None
    )


def test_the_counters_of_this_machine() -> None:
    before = machine_state()
    assert before is not None
    assert yardstick_loop_sec() > 0
    watched = Watched.between(before, machine_state())
    assert watched is not None
    assert watched.wall_sec > 0
    assert 0 <= watched.others_sec <= watched.cores * watched.wall_sec + 0.1
    assert Watched.from_json(watched.to_json()) == watched
    assert MachineState.from_json(before.to_json()) == before


def test_only_the_cores_that_this_process_may_use_count(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/cpu").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull total=1\n"
    )
    (tmp_path / "stat").write_text(
        "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 100 0 20 900 5 1 2 7 0 0\ncpu9999 800 0 0 0 0 0 0 0 0 0\nintr 5\n"
    )
    state = machine_state(tmp_path)
    assert state is not None
    assert (state.cores, state.busy_sec, state.steal_sec, state.stalled_sec) == (1, 1.23, 0.07, 2.5)


@pytest.mark.parametrize("text", [None, "", "cpu0 what\n"])
def test_a_system_without_counters_tells_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert machine_state(tmp_path) is None
    assert Watched.between(None, machine_state()) is None


def test_own_time_is_not_others() -> None:
    before = MachineState(at_sec=1.0, own_sec=5.0, busy_sec=100.0, steal_sec=1.0, cores=2, switches=3)
    after = MachineState(at_sec=2.0, own_sec=6.5, busy_sec=102.0, steal_sec=1.25, cores=2, switches=7)
    watched = Watched.between(before, after)
    assert watched is not None
    assert (watched.others_sec, watched.steal_sec, watched.switches, watched.stalled_sec) == (
        0.75,
        0.25,
        4,
        None,
    )


def test_others_on_spare_cores_take_nothing() -> None:
    assert stretch(2.0, cores=4).taken_sec(threads=2) == 0
    assert stretch(2.5, cores=4).taken_sec(threads=2) == 0.5
    assert stretch(0.05).is_quiet(2)
    assert not stretch(0.2).is_quiet(2)
    assert stretch(0.01, wall_sec=0.05).is_quiet(2), "a tick says nothing"


@pytest.mark.parametrize(
    ("others", "least", "most"),
    [(0.03, 1.0, 1.0), (0.55, 1.9, 2.1), (1.0, 1.9, 2.1), (1.5, 3.5, 4.2), (9.0, 9.0, 11.0)],
)
def test_how_much_slower_threads_get(others: float, least: float, most: float) -> None:
    # As measured on two cores: beside one busy process a network takes twice as long, beside three four times as long.
    assert least <= slowdown([stretch(others), None], threads=2) <= most


def test_a_slow_loop_shows_what_no_counter_does() -> None:
    assert loop_slowdown([None, 1.2], [1.0, 1.2, None]) == 1.0
    assert loop_slowdown([3.0], [1.0, 3.0]) == 3.0
    assert loop_slowdown([None], [None]) == 1.0


def test_what_is_said_of_the_other_work() -> None:
    quiet, busy = stretch(0.0), stretch(1.0)
    said = disturbance_of([quiet], [quiet, busy, None], 2, dropped=1)
    assert (said.blocks, said.dropped, said.slowdown, said.others_cores) == (3, 1, 1.0, 0.5)
    assert disturbance_of([None], [None], 2, dropped=0).others_cores is None
