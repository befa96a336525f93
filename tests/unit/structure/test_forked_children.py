"""A forked child of the engine (tests/support/children) does what a fresh interpreter does: what tests rest on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from forked_children import STARTER
from repository import ROOT
from waiting import wait_gone, wait_until

from tunefarm_tuning.process import (
    Access,
    ChildClosed,
    ChildCrashed,
    ChildLimits,
    ChildProcess,
    ChildTimedOut,
)
from tunefarm_tuning.process.running import OF_NETWORKS

MODULE = "misbehaving_handlers"
ENV = {"PYTHONPATH": str(ROOT / "tests" / "unit" / "tuning" / "process" / "child_handlers")}
LONG_SEC = 120.0


@pytest.fixture(params=["forked", "fresh"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    way: str = request.param
    monkeypatch.setattr(STARTER, "fresh", way == "fresh")
    return way


@pytest.fixture
def child(way: str) -> Iterator[ChildProcess]:
    limits = ChildLimits(cpu_sec=60)
    with ChildProcess(MODULE, env=ENV, limits=limits, access=Access(programs=True)) as child:
        child.start()
        yield child


def test_it_is_of_the_way_that_was_asked_for(way: str, child: ChildProcess) -> None:
    assert ("fork_server" in " ".join(psutil.Process(child.pid).cmdline())) == (way == "forked")


def test_it_leads_a_session_below_its_parent(child: ChildProcess) -> None:
    assert child.pid is not None
    assert child.call("pid", {}, timeout_sec=LONG_SEC) == child.pid
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid
    assert psutil.Process(child.pid).ppid() == os.getpid()


def test_its_surroundings_are_those_of_its_parent(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OF_THE_PARENT", "1")
    monkeypatch.setenv("A_SECRET", "1")
    monkeypatch.chdir(tmp_path)
    core = min(os.sched_getaffinity(0))
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        with ChildProcess(MODULE, env={**ENV, **OF_NETWORKS, "OF_THE_CHILD": "1"}) as child:
            environment = child.call("environment", {}, timeout_sec=LONG_SEC)
            process = psutil.Process(child.pid)
            assert process.cwd() == str(tmp_path)
            assert process.cpu_affinity() == [core]
    finally:
        os.sched_setaffinity(0, all_cores)
    assert {environment.get(name) for name in ("OF_THE_PARENT", "OF_THE_CHILD", "OMP_NUM_THREADS")} == {"1"}
    assert "A_SECRET" not in environment


def test_its_end_is_told(child: ChildProcess) -> None:
    with pytest.raises(ChildCrashed, match="SIGABRT") as died:
        child.call("die", {"signal": "SIGABRT"}, timeout_sec=LONG_SEC)
    assert "last words" in str(died.value.to_json())
    with pytest.raises(ChildCrashed, match="exit code 7"):
        child.call("leave", {"code": 7}, timeout_sec=LONG_SEC)
    with pytest.raises(ChildTimedOut):
        child.call("spin", {}, timeout_sec=0.2)


def test_nothing_of_it_is_left(child: ChildProcess) -> None:
    assert child.pid is not None
    pids = [child.pid, child.call("grandchild", {}, timeout_sec=LONG_SEC)]
    child.close()
    wait_gone(pids, "the child and what it started")
    with pytest.raises(ChildClosed):
        child.call("pid", {}, timeout_sec=LONG_SEC)


def test_a_server_that_somebody_killed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STARTER, "fresh", False)
    for _ in range(2):
        with ChildProcess(MODULE, env=ENV) as child:
            assert child.call("pid", {}, timeout_sec=LONG_SEC) == child.pid
        servers = [
            process
            for process in psutil.Process().children()
            if process.status() != psutil.STATUS_ZOMBIE
            and any(argument.endswith("fork_server.py") for argument in process.cmdline())
        ]
        assert servers
        for server in servers:
            server.kill()
            wait_until(lambda server=server: server.status() == psutil.STATUS_ZOMBIE, "its end")
