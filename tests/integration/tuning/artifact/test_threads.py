"""An artifact runs on the requested number of threads, and leaves the caller's threads alone."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from odd_net import build_odd, odd_inputs
from plain_artifacts import LOADED_TWICE, plain_artifact

from tunefarm_tuning.artifact.loader import ThreadsWarning, load
from tunefarm_tuning.artifact.threads import _GET_LIMIT, _SET_LIMIT, allowed_cores, choose_threads

FORKED = (
    LOADED_TWICE
    + """
assert tasks() == 2, tasks()  # this one and the pool's
assert same(more.run(inputs))
assert tasks() == 2 + 3, tasks()  # a thread of ours with two more
for task in os.listdir("/proc/self/task"):
    assert os.sched_getaffinity(int(task)) == limited
    os.sched_setaffinity(int(task), everywhere)  # on one core, threads that wait for each other take long on a busy machine
def work():
    assert same(model.run(inputs))
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
until = time.monotonic() + 60
while tasks() > 2 + 3 + 2 and time.monotonic() < until:
    time.sleep(0.01)  # a thread that was joined is listed a moment longer
assert tasks() == 2 + 3 + 2, tasks()  # and another with a pool of two, for all of the other threads
for task in os.listdir("/proc/self/task"):
    assert os.sched_getaffinity(int(task)) == everywhere
changed = {name for name in os.environ if os.environ[name] != before.get(name)}
assert changed == {"TVM_BIND_THREADS", "TVM_THREAD_POOL_SPIN_COUNT"}, changed
pid = os.fork()
if pid == 0:
    code = 3
    try:
        code = 0 if same(model.run(inputs)) and same(more.run(inputs)) else 2
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert same(model.run(inputs))
"""
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_artifact(build_odd(), tmp_path_factory.mktemp("odd") / "odd.tunefarm", threads=2)


def test_pools_are_few_and_bound_to_nothing_and_a_fork_has_its_own(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", FORKED, str(path)],
        capture_output=True, text=True, check=False, timeout=300, env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_another_number_of_threads_is_a_warning(path: Path) -> None:
    with pytest.warns(ThreadsWarning, match="tuned and timed on 2 threads but runs on 1 thread:") as caught:
        assert load(path, threads=1).threads == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(path, threads=2).threads == 2


def test_how_many_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    assert choose_threads(None, {}) == allowed_cores()
    assert choose_threads(None, {"threads": 1}) == 1
    assert choose_threads(7, {}) == 7
    monkeypatch.setenv("TVM_NUM_THREADS", "5")
    assert choose_threads(None, {"threads": 5}) == 5
    assert choose_threads(2, {"threads": 2}) == 2
    with pytest.raises(ValueError, match="at least 1"):
        choose_threads(0, {})


def test_no_more_cores_than_the_control_group_has_time_for(tmp_path: Path) -> None:
    bound = allowed_cores(tmp_path)
    for text, cores in (
        ("max 100000", bound),
        ("100000 100000", 1),
        ("150000 100000", min(2, bound)),
        ("", bound),
    ):
        (tmp_path / "cpu.max").write_text(text)
        assert allowed_cores(tmp_path) == cores
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    for quota, cores in (("-1", bound), ("50000", 1)):
        (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
        assert allowed_cores(tmp_path) == cores


def test_tvm_still_has_the_functions_that_limit_one_thread() -> None:
    import ctypes

    import tvm

    runtime = ctypes.PyDLL(tvm.libinfo.find_libtvm_runtime())
    set_limit, get_limit = getattr(runtime, _SET_LIMIT), getattr(runtime, _GET_LIMIT)
    seen: list[int] = []

    def work() -> None:
        set_limit(3)
        seen.append(get_limit())

    before = get_limit()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [3]
    assert get_limit() == before


def test_models_on_different_threads_are_both_right(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [load(path, threads=count) for count in (2, 1, 3, 2)]
    rights: list[bool] = []

    def work() -> None:
        inputs = odd_inputs(1)
        for _ in range(5):
            rights.extend(
                np.array_equal(model.run(inputs)["double"], inputs["small"] * 2) for model in models
            )

    work()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rights == [True] * 100
