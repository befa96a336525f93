"""The threads of a network's library: each share of each job is computed once, whatever else runs; the translation is the source's."""

from __future__ import annotations

import ctypes
import multiprocessing
import shutil
import subprocess
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from benchmarks.disturbed import load
from waiting import wait_until

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen import thread_pool
from tunefarm_tuning.tvm.codegen.thread_pool import thread_pool_object, translate

COMPILER = shutil.which("cc") or shutil.which("gcc") or "clang"
HARNESS = """
#include "thread_pool.c"
const int tunefarm_threads_of_target = 4;
void tunefarm_pause(void) {}
static int counts[MOST], times_failed;
static _Thread_local int is_caller;
static int count(int number, Group *group, void *argument) {
  __atomic_fetch_add((int *)argument + number, 1, __ATOMIC_SEQ_CST);
  for (volatile int step = 0; step < 200 * (number % 3); ++step) continue;
  return group->shares == 1 && number ? -1 : 0;
}
static int fail(int number, Group *group, void *argument) {
  if (is_caller && group->shares == 2) ++*(int *)argument;
  return number ? -7 : 0;
}
static int fail_once(int number, Group *group, void *argument) {
  int *counts = argument;
  return counts[number]++ ? 0 : -7;
}
/* Return how often all shares were computed without error, where each fails the first time. */
int shares_computed_again(int shares) {
  int counts[MOST] = {0}, right = 0;
  if (launch(fail_once, counts, shares)) return -1;
  for (int number = 0; number < shares; ++number) right += counts[number] == 2;
  return right;
}
static int last_is_slow(int number, Group *group, void *argument) {
  if (number == group->shares - 1) usleep(30000);
  return 0;
}
int slow_share(void) { return launch(last_is_slow, 0, 0); }
/* Return the number of shares of `jobs` that were not computed exactly once. */
int wrong_shares(int jobs, int shares) {
  int wrong = 0;
  for (int number = 0; number < jobs; ++number) {
    int counts[MOST] = {0}, all = 0;
    if (launch(count, counts, shares)) ++wrong;
    for (int share = 0; share < MOST; ++share) { wrong += counts[share] > 1; all += counts[share]; }
    wrong += all != 1 && all != (shares ? shares : threads);
  }
  return wrong;
}
int code_of_a_failed_share(void) { is_caller = 1; times_failed = 0; int code = launch(fail, &times_failed, 2); return times_failed ? code : 0; }
int workers_running(void) { int all = 0; for (int number = 1; number < MOST; ++number) all += load(workers[number].state, SEQ_CST) != GONE; return all; }
void set_threads(int count) { Any wanted = {INTEGER, 0, count}, result; __tvm_ffi_tunefarm_set_threads(0, &wanted, 1, &result); }
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("pool")
    (folder / "harness.c").write_text(HARNESS)
    source = Path(thread_pool.__file__).parent
    command = [COMPILER, "-O2", "-w", "-shared", "-fPIC", f"-I{source}", "-o", str(folder / "pool.so")]
    subprocess.run([*command, str(folder / "harness.c")], check=True)
    return ctypes.CDLL(str(folder / "pool.so"))


@pytest.fixture
def other_work() -> Iterator[None]:
    with load("two processes"):
        yield


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.usefixtures("other_work")
def test_each_share_of_each_job_is_computed_once(pool: ctypes.CDLL, threads: int) -> None:
    pool.set_threads(threads)
    assert pool.wrong_shares(20_000, 0) == 0
    assert pool.wrong_shares(2_000, 1) == 0
    assert pool.wrong_shares(5_000, 5) == 0
    assert pool.workers_running() <= threads - 1


def test_idle_workers_end_and_the_next_job_starts_them(pool: ctypes.CDLL) -> None:
    pool.set_threads(4)
    for _ in range(2):
        wait_until(lambda: not pool.wrong_shares(100, 0) and pool.workers_running() == 3, "three workers")
        wait_until(lambda: pool.workers_running() == 0, "the workers' end")


@pytest.mark.usefixtures("other_work")
def test_callers_at_the_same_time_compute_alone_or_with_the_workers(pool: ctypes.CDLL) -> None:
    pool.set_threads(3)
    wrong: list[int] = []
    callers = [threading.Thread(target=lambda: wrong.append(pool.wrong_shares(10_000, 0))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == [0] * 4


def test_a_share_that_fails_fails_on_the_callers_thread(pool: ctypes.CDLL) -> None:
    pool.set_threads(2)
    assert [pool.code_of_a_failed_share() for _ in range(100)] == [-7] * 100


def test_shares_that_failed_are_computed_once_more(pool: ctypes.CDLL) -> None:
    pool.set_threads(3)
    assert [pool.shares_computed_again(3) for _ in range(100)] == [3] * 100


def test_a_caller_waits_for_a_slow_share(pool: ctypes.CDLL) -> None:
    pool.set_threads(2)
    assert [pool.slow_share() for _ in range(3)] == [0] * 3
    assert pool.wrong_shares(100, 0) == 0


def test_more_threads_after_fewer(pool: ctypes.CDLL) -> None:
    for threads in (5, 2, 5, 1, 3):
        pool.set_threads(threads)
        assert pool.wrong_shares(1_000, 0) == 0


def test_a_fork_computes_alone_until_it_is_told_to_start_threads(pool: ctypes.CDLL) -> None:
    pool.set_threads(2)
    assert pool.wrong_shares(100, 0) == 0

    def compute() -> None:
        assert pool.wrong_shares(1_000, 0) == 0
        pool.set_threads(3)
        assert pool.wrong_shares(1_000, 0) == 0
        assert pool.workers_running() <= 2

    child = multiprocessing.get_context("fork").Process(target=compute)
    child.start()
    child.join(120)
    assert child.exitcode == 0


def test_the_translation_is_that_of_the_source() -> None:
    translation = Path(thread_pool.__file__).with_suffix(".ll").read_text("utf-8")
    heading = translation.partition(":")[0]
    if not heading.endswith(f"ziglang {version('ziglang')}"):
        pytest.skip(f"another ziglang is installed: {heading}")
    assert translation == translate()


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("llvm -mcpu=x86-64", 62),
        ("llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu", 183),
        ("llvm -mcpu=sifive-u74 -mtriple=riscv64-linux-gnu -mabi=lp64d", 243),
    ],
)
def test_it_is_compiled_for_machines_of_64_bits(target: str, machine: int, tmp_path: Path) -> None:
    path = thread_pool_object(parse_target(target), tmp_path / "pool.o")
    assert path is not None
    data = path.read_bytes()
    assert data[:5] == b"\x7fELF\x02"
    assert int.from_bytes(data[18:20], "little") == machine


def test_a_machine_of_32_bits_keeps_tvms_threads(tmp_path: Path) -> None:
    target = parse_target("llvm -mcpu=cortex-a7 -mtriple=armv7l-linux-gnueabihf -mfloat-abi=hard")
    assert thread_pool_object(target, tmp_path / "pool.o") is None
    assert not list(tmp_path.iterdir())
