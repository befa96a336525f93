"""The supervisor keeps its parts running, and leaves no processes, however it ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waiting import gone, wait_gone, wait_until

SERVE = "import os, time; print(f'pid={os.getpid()}'); print('up'); time.sleep(1000)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVE
PARENT = (
    "import os, subprocess, sys, time\n"
    "print(f'pid={os.getpid()}')\n"
    "for options in ({}, {'start_new_session': True}):\n"
    "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], **options)\n"
    "    print(f'pid={child.pid}')\n"
    "print('up')\n"
    "time.sleep(1000)\n"
)


def part(name: str, code: str = SERVE, **more: Any) -> dict[str, Any]:
    return {"name": name, "code": code, **more}


def test_parts_start_when_what_they_need_is_up(toy_farm: Callable[..., Any]) -> None:
    farm = toy_farm(part("a"), part("b", needs=["a"]), part("c", needs=["a", "b"]))
    farm.wait_for("ready")
    happened = [(event["kind"], event["part"]) for event in farm.events if event["part"]]
    assert happened == [
        ("starting", "a"),
        ("up", "a"),
        ("starting", "b"),
        ("up", "b"),
        ("starting", "c"),
        ("up", "c"),
    ]
    assert farm.end() == 0
    assert farm.events[-1]["kind"] == "stopped"


def test_a_part_can_start_before_what_it_needs_and_ends_before_it(
    toy_farm: Callable[..., Any], tmp_path: Path
) -> None:
    sign, ended = tmp_path / "early-runs", tmp_path / "early-ended"
    early = (
        "import signal, pathlib, sys\n"
        f"def end(*_): pathlib.Path({str(ended)!r}).touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(sign)!r}).touch()\n"
    ) + SERVE
    late = (
        "import signal, pathlib, sys, time\n"
        f"def end(*_): print('early ended:', pathlib.Path({str(ended)!r}).exists()); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"while not pathlib.Path({str(sign)!r}).exists(): time.sleep(0.01)\n"
    ) + SERVE
    farm = toy_farm(
        part("a"), part("late", late), part("early", early, needs=["a", "late"], starts_after=["a"])
    )
    farm.wait_for("ready")
    assert farm.end() == 0
    assert "early ended: True" in farm.log("late")


def test_a_part_that_dies_is_started_again(toy_farm: Callable[..., Any]) -> None:
    farm = toy_farm(part("a"), part("b", needs=["a"]))
    farm.wait_for("ready")
    (first,) = farm.pids("a")
    os.kill(first, signal.SIGKILL)
    farm.wait_for("up", "a", count=2)
    assert farm.kinds("b") == ["starting", "up"]
    assert farm.kinds().count("ready") == 1
    assert len(farm.pids("a")) == 2


def test_a_part_that_cannot_live_ends_the_farm_with_its_last_words(toy_farm: Callable[..., Any]) -> None:
    routine = json.dumps({"level": "info", "event": "keys made"})
    farm = toy_farm(part("good"), part("bad", f"print({routine!r}); raise SystemExit('the port is taken')"))
    assert farm.process.wait(120) == 1
    failed = wait_until(lambda: [event for event in farm.events if event["kind"] == "failed"], "the failure")[
        0
    ]
    assert failed["message"].endswith("bad.log ends with:\nthe port is taken"), (
        "no log lines of what went well"
    )
    assert failed["data"]["error"]["code"] == "farm-failed"
    wait_gone(farm.pids("good"), "the good part")


def test_a_command_that_does_not_exist_is_a_failure_too(toy_farm: Callable[..., Any]) -> None:
    farm = toy_farm(part("bad", "import os; os.execvp('no-such-program', ['x'])"))
    assert farm.process.wait(120) == 1


def test_parts_end_in_reverse_and_the_deaf_are_killed(toy_farm: Callable[..., Any]) -> None:
    farm = toy_farm(part("a"), part("deaf", DEAF, needs=["a"], grace_sec=0.5))
    farm.wait_for("ready")
    pids = farm.all_pids()
    assert farm.end() == 0
    wait_gone(pids, "all parts")


def test_a_frozen_part_does_not_hold_up_the_end(toy_farm: Callable[..., Any]) -> None:
    farm = toy_farm(part("a", grace_sec=0.5))
    farm.wait_for("ready")
    (pid,) = farm.pids("a")
    os.kill(pid, signal.SIGSTOP)
    assert farm.end() == 0
    wait_gone([pid], "the frozen part")


def test_what_a_part_started_ends_with_the_farm(toy_farm: Callable[..., Any]) -> None:
    farm = toy_farm(part("parent", PARENT))
    farm.wait_for("ready")
    pids = farm.pids("parent")
    assert len(pids) == 3
    assert farm.end() == 0
    wait_gone(pids, "all parts")


def test_what_a_killed_part_leaves_behind_is_ended(toy_farm: Callable[..., Any]) -> None:
    farm = toy_farm(part("parent", PARENT))
    farm.wait_for("ready")
    parent, *orphans = farm.pids("parent")
    os.kill(parent, signal.SIGKILL)
    farm.wait_for("up", "parent", count=2)
    # The one in a session of its own, too: the supervisor adopted it.
    wait_gone(orphans, "the orphans")
    after = farm.pids("parent")[3:]
    assert len(after) == 3
    assert all(not gone(pid) for pid in after)
    assert farm.end() == 0
    wait_gone(after, "the second life's processes")


def test_a_killed_supervisor_takes_all_groups_along(toy_farm: Callable[..., Any]) -> None:
    farm = toy_farm(part("a"), part("deaf", DEAF), part("parent", PARENT))
    farm.wait_for("ready")
    parent, same_group, own_session = farm.pids("parent")
    frozen = farm.pids("a")[0]
    os.kill(frozen, signal.SIGSTOP)
    farm.process.kill()
    ends = [frozen, *farm.pids("deaf"), parent, same_group]
    try:
        wait_gone(ends, "the parts")
    finally:
        os.kill(own_session, signal.SIGKILL)  # real parts tie what they start themselves
