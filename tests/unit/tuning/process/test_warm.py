"""Children that wait with TVM loaded: the next calls take them, and nothing is weaker for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from waiting import wait_gone, wait_until

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process import Access, ChildLimits, ChildProcess, in_background
from tunefarm_tuning.process.warm import WARM, EarlyChild

pytest.importorskip("tvm")
IMPORT = "tunefarm_tuning.tvm.children.import_network"
COMPILE = "tunefarm_tuning.tvm.children.compile"
ARTIFACT = "tunefarm_tuning.tvm.children.artifact"
LONG_SEC = 120.0


@pytest.fixture(autouse=True)
def waiting() -> Iterator[int]:
    """Keep one child, and return its process id."""
    WARM.keep(1)
    yield _waiting_pid()
    WARM.keep(0)


def _waiting_pid() -> int:
    (running,) = WARM._waiting
    return running.pid


def test_an_import_takes_the_child_that_waits_and_another_waits_then(waiting: int) -> None:
    with ChildProcess(IMPORT) as child:
        child.start()
        assert child.pid == waiting
        assert _waiting_pid() != waiting
    wait_gone([waiting], "the child, at its call's end")


def test_after_a_compile_another_waits_when_that_is_asked_for(waiting: int) -> None:
    with ChildProcess(COMPILE) as child:
        child.start()
        assert child.pid == waiting
        assert not WARM._waiting
    WARM.keep(1)
    assert _waiting_pid() != waiting


def test_a_child_that_needs_no_tvm_leaves_it_to_others(waiting: int) -> None:
    with ChildProcess("tunefarm_tuning.frontend.onnx.check_child") as child:
        child.start()
        assert child.pid != waiting == _waiting_pid()


def test_it_has_the_limits_sandbox_and_environment_of_its_order(waiting: int) -> None:
    limits = ChildLimits(memory_bytes=3 << 30, cpu_sec=77, file_bytes=0)
    env = {"OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
    with ChildProcess(IMPORT, limits=limits, access=Access(), env=env) as child:
        child.start()
        assert child.pid == waiting
        process = psutil.Process(waiting)
        assert process.rlimit(psutil.RLIMIT_AS)[0] == 3 << 30
        assert process.rlimit(psutil.RLIMIT_CPU)[0] == 77
        assert process.rlimit(psutil.RLIMIT_FSIZE)[0] == 0
        warm = child.sandbox
    WARM.keep(0)
    with ChildProcess(IMPORT, limits=limits, access=Access(), env=env) as fresh:
        fresh.start()
        assert warm == fresh.sandbox
        assert warm is not None
        assert not warm.free_threads, "libraries start none"


def test_a_child_that_died_while_it_waited_is_replaced(waiting: int) -> None:
    os.kill(waiting, signal.SIGKILL)
    wait_until(lambda: psutil.Process(waiting).status() == psutil.STATUS_ZOMBIE, "its end")
    with ChildProcess(IMPORT) as child:
        child.start()
        assert child.pid not in (waiting, _waiting_pid())


@pytest.mark.exhaustive
def test_work_in_the_background_leaves_it_to_others(waiting: int) -> None:
    with in_background(), ChildProcess(IMPORT) as child:
        child.start()
        assert child.pid != waiting == _waiting_pid()


def test_an_order_that_cannot_be_given_ends_the_child(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEFARM_SANDBOX", "sometimes")
    with ChildProcess(IMPORT) as child, pytest.raises(InvalidInputError, match="TUNEFARM_SANDBOX"):
        child.start()
    wait_gone([waiting], "the child without an order")


def test_it_ends_with_a_parent_that_is_killed() -> None:
    script = """
import threading
from tunefarm_tuning.process.warm import WARM, EarlyChild
WARM.keep(2)
print(*(running.pid for running in WARM._waiting), flush=True)
threading.Event().wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.kill()
    parent.communicate()
    assert len(pids) == 2
    wait_gone(pids, "both")


def test_an_early_child_serves_the_call_that_it_was_started_for() -> None:
    with EarlyChild(ARTIFACT, "tvm") as early, ChildProcess(ARTIFACT, early=early) as child:
        running = early._running
        assert running is not None
        child.start()
        assert child.pid == running.pid
        first, sandbox = running.pid, child.sandbox
        child.kill()
        child.start()
        assert child.pid != first, "the next one starts as always"
        assert child.sandbox == sandbox


@pytest.mark.exhaustive
def test_an_early_child_that_nobody_takes_ends() -> None:
    early = EarlyChild("tvm")
    assert early._running is not None
    pid = early._running.pid
    early.close()
    wait_gone([pid], "the child")
    with early, ChildProcess(ARTIFACT, early=early) as child:
        child.start()
        assert child.pid != pid


def test_in_the_background_no_child_is_early() -> None:
    with in_background():
        assert EarlyChild("tvm")._running is None


@pytest.mark.exhaustive
def test_a_waiting_child_that_others_reaped_is_replaced(waiting: int) -> None:
    """Who embeds the engine may wait for all children of its process."""
    os.kill(waiting, signal.SIGKILL)
    os.waitpid(waiting, 0)
    with ChildProcess(IMPORT) as child:
        child.start()
        assert child.pid != waiting
