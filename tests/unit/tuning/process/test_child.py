"""Child processes: answers, the ways to die, and nothing left behind."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from waiting import gone, wait_gone, wait_until

from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError, InvariantError
from tunefarm_tuning.core.spans import SpanKind, recording
from tunefarm_tuning.process import (
    Access,
    ChildClosed,
    ChildCrashed,
    ChildLimits,
    ChildOutOfMemory,
    ChildProcess,
    ChildTimedOut,
    call_in_child,
    in_background,
)
from tunefarm_tuning.process.running import OF_NETWORKS, child_environment

HANDLERS_DIR = Path(__file__).parent / "child_handlers"
MODULE = "misbehaving_handlers"
ENV = {"PYTHONPATH": str(HANDLERS_DIR)}
LONG_SEC = 120.0
PYTORCH = """
def __getattr__(name):
    if name.startswith("_"): raise AttributeError(name)
    return name  # dtypes
class Tensor: pass
class dtype: pass
class version: cuda = "13.0"
class cuda:
    Stream = object
    def is_available(): raise RuntimeError("CUDA has been started")
"""


def test_spans_of_a_child_are_noted_with_its_process(child: ChildProcess) -> None:
    child.call("echo", {"a": 1}, timeout_sec=LONG_SEC)
    with recording() as log:
        assert child.call("spanned", {}, timeout_sec=LONG_SEC) is None
        with pytest.raises(InvalidModelError):
            child.call("spanned", {"fail": True}, timeout_sec=LONG_SEC)
    names = [(noted.name, noted.kind, noted.process) for noted in log.spans]
    inner = ("in the child", SpanKind.LLVM, child.pid)
    call = (f"{MODULE}: spanned", SpanKind.CALL, child.pid)
    assert sorted(names) == sorted([call, inner, call, inner])


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux tells")
def test_a_child_in_the_background_runs_where_a_core_is_idle() -> None:
    def policy(child: ChildProcess) -> int:
        with child:
            child.call("echo", {}, timeout_sec=LONG_SEC)
            assert child.pid is not None
            return os.sched_getscheduler(child.pid)

    with in_background():
        assert policy(ChildProcess(MODULE, env=ENV)) == os.SCHED_IDLE
        with ThreadPoolExecutor() as executor:
            run = contextvars.copy_context().run
            assert executor.submit(run, policy, ChildProcess(MODULE, env=ENV)).result() == os.SCHED_IDLE
    assert policy(ChildProcess(MODULE, env=ENV)) == os.SCHED_OTHER


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux ranks processes without privileges")
def test_a_child_in_the_background_leaves_a_core_to_the_others() -> None:
    """By what each gets of one core: policies rank only within a session where the kernel groups processes by session."""
    core = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor())
        with in_background():
            behind = stack.enter_context(ChildProcess(MODULE, env=ENV))
            behind.start()
        ahead = stack.enter_context(ChildProcess(MODULE, env=ENV))
        ahead.start()
        spinning = []
        for child in (behind, ahead):
            assert child.pid is not None
            os.sched_setaffinity(child.pid, {core})
            spinning.append(psutil.Process(child.pid))
            executor.submit(child.call, "spin", {}, timeout_sec=LONG_SEC)
        before = [sum(process.cpu_times()[:2]) for process in spinning]

        def leaves_it() -> bool:
            spent = [
                sum(process.cpu_times()[:2]) - sec for process, sec in zip(spinning, before, strict=True)
            ]
            return spent[1] > 0.5 and spent[1] > 3 * spent[0]

        wait_until(leaves_it, "three quarters of the core", within_sec=60)
        assert Path(f"/proc/{behind.pid}/oom_score_adj").read_text().strip() == "1000"


def test_a_child_that_is_started_notes_its_start() -> None:
    with recording() as log, ChildProcess(MODULE, env=ENV) as child:
        child.call("echo", {}, timeout_sec=LONG_SEC)
    assert [noted.kind for noted in log.spans] == [SpanKind.START, SpanKind.CALL]


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    with ChildProcess(MODULE, env=ENV) as process:
        yield process


def test_answers_and_stays(child: ChildProcess) -> None:
    assert child.pid is None
    assert child.call("echo", {"a": [1, "ü"]}, timeout_sec=LONG_SEC) == {"a": [1, "ü"]}
    assert child.alive
    assert child.call("pid", {}, timeout_sec=LONG_SEC) == child.pid
    assert child.call("pid", {}, timeout_sec=LONG_SEC) == child.pid


def test_a_large_request_and_answer(child: ChildProcess) -> None:
    text = "x" * 5_000_000
    assert child.call("echo", {"text": text}, timeout_sec=LONG_SEC) == {"text": text}


def test_prints_do_not_disturb_the_protocol(child: ChildProcess) -> None:
    assert child.call("noise", {}, timeout_sec=LONG_SEC) == "fine"
    assert child.call("noise", {}, timeout_sec=LONG_SEC) == "fine"


def test_start_makes_it_ready(child: ChildProcess) -> None:
    child.start()
    pid = child.pid
    assert child.alive
    child.start()
    assert child.call("pid", {}, timeout_sec=LONG_SEC) == pid


def test_two_halves_of_a_call(child: ChildProcess) -> None:
    child.start_call("echo", {"n": 1})
    assert child.fileno() > 2
    with pytest.raises(InvariantError, match="under way"):
        child.start_call("echo", {"n": 2})
    assert child.finish_call(timeout_sec=LONG_SEC) == {"n": 1}
    with pytest.raises(InvariantError, match="no call"):
        child.finish_call(timeout_sec=LONG_SEC)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGFPE", "SIGBUS"])
def test_a_crash_names_its_signal_and_the_next_call_works(child: ChildProcess, name: str) -> None:
    with pytest.raises(ChildCrashed) as caught:
        child.call("die", {"signal": name}, timeout_sec=LONG_SEC)
    assert caught.value.signal_name == name
    assert name in caught.value.message
    assert "last words" in caught.value.detail
    assert "\x1b" not in caught.value.detail
    assert child.call("echo", {}, timeout_sec=LONG_SEC) == {}


def test_an_early_exit_is_a_crash(child: ChildProcess) -> None:
    with pytest.raises(ChildCrashed) as caught:
        child.call("leave", {"code": 7}, timeout_sec=LONG_SEC)
    assert (caught.value.exit_code, caught.value.signal_name) == (7, None)


def test_a_child_killed_between_calls_is_replaced(child: ChildProcess) -> None:
    first = child.call("pid", {}, timeout_sec=LONG_SEC)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not child.alive, "its end")
    assert child.call("pid", {}, timeout_sec=LONG_SEC) != first


@pytest.mark.parametrize("method", ["spin", "native_wait"])
def test_a_timeout_kills_the_child(child: ChildProcess, method: str) -> None:
    first = child.call("pid", {}, timeout_sec=LONG_SEC)
    with pytest.raises(ChildTimedOut):
        child.call(method, {}, timeout_sec=0.3)
    assert gone(first)
    assert child.call("echo", {}, timeout_sec=LONG_SEC) == {}


def test_memory_limit() -> None:
    with ChildProcess(MODULE, env=ENV, limits=ChildLimits(memory_bytes=1 << 30)) as child:
        assert child.call("allocate", {"bytes": 1 << 20}, timeout_sec=LONG_SEC) == 1 << 20
        with pytest.raises(ChildOutOfMemory):
            child.call("allocate", {"bytes": 2 << 30}, timeout_sec=LONG_SEC)
        assert child.call("allocate", {"bytes": 1 << 20}, timeout_sec=LONG_SEC) == 1 << 20


def test_sigkill_from_outside_counts_as_memory(child: ChildProcess) -> None:
    with pytest.raises(ChildOutOfMemory):
        child.call("die", {"signal": "SIGKILL"}, timeout_sec=LONG_SEC)


def test_cpu_limit() -> None:
    with pytest.raises(ChildTimedOut, match="CPU seconds"):
        call_in_child(MODULE, "spin", {}, env=ENV, limits=ChildLimits(cpu_sec=1), timeout_sec=LONG_SEC)


def test_limits_survive_their_text() -> None:
    limits = ChildLimits(memory_bytes=None, cpu_sec=3, file_bytes=5)
    assert ChildLimits.from_text(limits.to_text()) == limits


def test_errors_cross(child: ChildProcess) -> None:
    with pytest.raises(InvalidModelError) as refused:
        child.call("refuse", {}, timeout_sec=LONG_SEC)
    assert refused.value.code == "unsupported-operator"
    assert refused.value.fields == {"operator": "Loop"}
    pid = child.pid
    with pytest.raises(InvariantError, match="ZeroDivisionError") as stumbled:
        child.call("stumble", {}, timeout_sec=LONG_SEC)
    assert stumbled.value.code == "internal"
    assert any("stumble" in line for line in stumbled.value.fields["traceback"])
    assert "\x1b" not in str(stumbled.value.to_json())
    with pytest.raises(InvariantError, match="not JSON"):
        child.call("not_json", {}, timeout_sec=LONG_SEC)
    with pytest.raises(InvariantError, match="no handler"):
        child.call("nothing", {}, timeout_sec=LONG_SEC)
    assert child.pid == pid


def test_a_module_that_cannot_be_imported() -> None:
    with ChildProcess("no_such_module") as child:
        for _ in range(2):
            with pytest.raises(InvariantError, match="no_such_module"):
                child.call("echo", {}, timeout_sec=LONG_SEC)
            assert not child.alive


def test_a_child_that_was_spawned_is_ready_for_the_next_call(child: ChildProcess) -> None:
    child.spawn()
    spawned = child.pid
    child.spawn()
    assert child.call("pid", {}, timeout_sec=LONG_SEC) == spawned == child.pid
    child.kill()
    child.spawn()
    child.kill()  # before it is ready
    assert child.call("pid", {}, timeout_sec=LONG_SEC) != spawned


def test_a_child_that_was_spawned_in_vain_is_told_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChildProcess("no_such_module") as child:
        child.spawn()
        with pytest.raises(InvariantError, match="no_such_module"):
            child.call("echo", {}, timeout_sec=LONG_SEC)
        monkeypatch.setenv("TUNEFARM_SANDBOX", "sometimes")
        child.spawn()
        assert not child.alive
        with pytest.raises(InvalidInputError, match="TUNEFARM_SANDBOX"):
            child.call("echo", {}, timeout_sec=LONG_SEC)
    child.spawn()
    assert not child.alive, "it is closed"


def test_close_from_another_thread_ends_the_call(child: ChildProcess) -> None:
    pid = child.call("pid", {}, timeout_sec=LONG_SEC)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(child.call, "sleep", {"sec": 600}, timeout_sec=600)
        wait_until(lambda: child._in_call, "the call to begin")
        child.close()
        with pytest.raises(ChildClosed):
            call.result(timeout=60)
    assert gone(pid)
    with pytest.raises(ChildClosed):
        child.call("echo", {}, timeout_sec=LONG_SEC)
    child.close()


def test_kill_from_another_thread_leaves_the_object_usable(child: ChildProcess) -> None:
    child.call("pid", {}, timeout_sec=LONG_SEC)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(child.call, "sleep", {"sec": 600}, timeout_sec=600)
        wait_until(lambda: child._in_call, "the call to begin")
        child.kill()
        with pytest.raises((ChildCrashed, ChildOutOfMemory)):
            call.result(timeout=60)
    assert child.call("echo", {}, timeout_sec=LONG_SEC) == {}


def test_close_ends_grandchildren() -> None:
    with ChildProcess(MODULE, access=Access(programs=True), env=ENV) as child:
        grandchild = child.call("grandchild", {}, timeout_sec=LONG_SEC)
        assert not gone(grandchild)
    wait_gone([grandchild], "the grandchild")


def test_a_child_outlives_the_thread_that_started_it(child: ChildProcess) -> None:
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(child.call("pid", {}, timeout_sec=LONG_SEC)))
    thread.start()
    thread.join()
    assert child.call("pid", {}, timeout_sec=LONG_SEC) == pids[0]


@pytest.mark.parametrize("busy_with", ["echo", "native_wait"])
def test_sigkill_of_the_parent_ends_child_and_grandchild(busy_with: str) -> None:
    script = f"""
import threading
from tunefarm_tuning.process import Access, ChildProcess
child = ChildProcess({MODULE!r}, access=Access(programs=True), env={ENV!r})
print(child.call("pid", {{}}, timeout_sec=60), child.call("grandchild", {{}}, timeout_sec=60), flush=True)
child.call({busy_with!r}, {{}}, timeout_sec=600)
threading.Event().wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(map(gone, pids))
    finally:
        parent.kill()
        parent.communicate()
    wait_gone(pids, "both")


def test_nothing_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for method in ("echo", "leave"):
        with ChildProcess(MODULE, env=ENV) as child:
            try:
                child.call(method, {"code": 1}, timeout_sec=LONG_SEC)
            except ChildCrashed:
                pass
    wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) == before, "all files to be closed")


def test_secrets_do_not_reach_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEFARM_DATABASE_URL", "postgresql://u:p@h/d")
    monkeypatch.setenv("SOME_SECRET_KEY", "s")
    monkeypatch.setenv("HARMLESS", "1")
    seen = call_in_child(MODULE, "environment", {}, env=ENV, timeout_sec=LONG_SEC)
    assert "TUNEFARM_DATABASE_URL" not in seen
    assert "SOME_SECRET_KEY" not in seen
    assert seen["HARMLESS"] == "1"


def test_tvm_binds_no_threads_in_a_child_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_BIND_THREADS", raising=False)
    assert child_environment({})["TVM_BIND_THREADS"] == "0"
    monkeypatch.setenv("TVM_BIND_THREADS", "1")
    assert child_environment({})["TVM_BIND_THREADS"] == "1"


def test_a_users_own_tunables_stay_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert "GLIBC_TUNABLES" not in child_environment({})  # what is timed gets memory as a user's process does
    assert child_environment(OF_NETWORKS)["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert child_environment(OF_NETWORKS)["GLIBC_TUNABLES"] == "glibc.malloc.check=1:glibc.malloc.hugetlb=1"


def test_tvms_import_in_a_child_leaves_pytorch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm")
    for name in ("TVM_FFI_DISABLE_TORCH_C_DLPACK", "PYTORCH_NVML_BASED_CUDA_CHECK"):
        monkeypatch.delenv(name, raising=False)
    environment = child_environment({})
    assert environment["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    (tmp_path / "torch.py").write_text(PYTORCH)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {"PYTHONPATH": os.pathsep.join(paths)}
    host = call_in_child(
        "tunefarm_tuning.tvm.children.machine", "host_target", {}, env=env, timeout_sec=LONG_SEC
    )
    assert host["kind"] == "llvm"
