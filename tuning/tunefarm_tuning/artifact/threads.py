"""Runs an artifact's kernels on a number of threads, without changing the caller's threads. Needs Python 3.11 and apache-tvm.

This file is also inside every artifact, for `loader.py` there. The library of a CPU of 64 bits has threads of its own. Other libraries,
and those of older artifacts, run on TVM's pool. TVM 0.27 behaves as follows, and this module corrects it:

- A thread pool belongs to the calling thread, and its size is fixed when it is made. Here only one of the caller's threads, the first
  that calls, has a pool. Calls from other threads, and of models on more threads, run on a thread of this module, one for each size of
  pool: the number of pools does not grow with the number of callers.
- Making a pool binds the calling thread, and all that it starts afterwards, to the machine's first cores, whatever it was limited to.
  ``TVM_BIND_THREADS=0`` prevents that; it is set unless it is set already.
- The pool's workers keep spinning for a tenth of a second after each call. ``TVM_THREAD_POOL_SPIN_COUNT`` is set to about five
  milliseconds, unless it is set already.
- After a fork the pool's workers are gone, and a call would wait for them forever: the child's calls run on a new pool. One case
  remains: a child that ends by ``sys.exit``, and whose parent's same thread had called on several threads, hangs while TVM cleans up.
  Processes that ``multiprocessing`` starts end in another way.
- With one thread there is no pool: calls from several threads run in parallel.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

SET_THREADS = "tunefarm_set_threads"
"""The function of a library with threads of its own that takes their number. Nothing else may run the library meanwhile."""

_SPIN_COUNT = "10000"
_SET_LIMIT = "_ZN3tvm7runtime9threading17SetMaxConcurrencyEi"
_GET_LIMIT = "_ZN3tvm7runtime9threading14MaxConcurrencyEv"
_DEFAULT_AFFINITY = 0


class ThreadsWarning(UserWarning):
    """The artifact runs on another number of threads than it was tuned for."""


def allowed_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of cores that this process may use: those it is bound to, limited by its control group's quota."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(bound, _quota(cgroup) or bound))


def _quota(cgroup: Path) -> int | None:
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = " ".join((cgroup / name).read_text(encoding="ascii") for name in names).split()
            quota, period = int(words[0]), int(words[1])
        except (
            OSError,
            ValueError,
            IndexError,
        ):  # "max 100000" and a missing file mean that there is no limit
            continue
        if quota > 0 and period > 0:
            return math.ceil(quota / period)
    return None


def choose_threads(wanted: int | None, manifest: Mapping[str, Any]) -> int:
    """Return the number of threads to run on; warn if the artifact was tuned for another number.

    Raises:
        ValueError: If `wanted` is not positive.
    """
    if wanted is not None and wanted < 1:
        raise ValueError(f"threads must be at least 1, not {wanted}")
    tuned_for = manifest.get("threads")
    setting = os.environ.get("TVM_NUM_THREADS", "")
    if wanted is not None:
        threads = wanted
    elif setting.isdigit() and int(setting) > 0:
        threads = int(setting)
    else:
        threads = min(allowed_cores(), tuned_for or allowed_cores())
    if tuned_for is not None and threads != tuned_for:
        warnings.warn(
            f"the artifact was tuned and timed on {_count(tuned_for)} but runs on {_count(threads)}: its "
            f"results are the same, but its kernels may be slow. Tune the model for {_count(threads)}, or "
            f"load it with threads={tuned_for}",
            ThreadsWarning,
            stacklevel=4,
        )
    return threads


def _count(threads: int) -> str:
    return f"{threads} thread{'s' if threads != 1 else ''}"


class LibraryThreads:
    """Runs functions of a library whose kernels run on its own threads, `count` with the caller's. Concurrency: any thread.

    With one thread, calls run in parallel. With several, they run one after the other, since each uses all threads.
    """

    def __init__(self, count: int, set_threads: Callable[[int], Any]) -> None:
        self.count = count
        self._set_threads = set_threads
        self.renew_after_fork()
        _all.add(self)

    def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Return ``function(*arguments)``."""
        with self._turn:
            return function(*arguments)

    def renew_after_fork(self) -> None:
        """Have the library start new threads in a forked process, where the old ones, and one that may hold the lock, do not exist."""
        self._turn: AbstractContextManager[Any] = threading.Lock() if self.count > 1 else nullcontext()
        self._set_threads(self.count)


class TvmThreads:
    """Runs a model's functions with their kernels on `count` threads of TVM's pool. Concurrency: as `LibraryThreads`."""

    def __init__(self, count: int) -> None:
        import tvm
        import tvm_ffi

        self.count = count
        if count > 1:
            os.environ.setdefault("TVM_BIND_THREADS", "0")
            os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", _SPIN_COUNT)
        self._configure = tvm_ffi.get_global_func("runtime.config_threadpool")
        self._pool_size = tvm_ffi.get_global_func("runtime.NumThreads")
        # Only C++ can set this limit of the calling thread. The environment variable would set it for the whole process.
        runtime = ctypes.PyDLL(tvm.libinfo.find_libtvm_runtime())
        try:
            self._set_limit = getattr(runtime, _SET_LIMIT)
            self._get_limit = getattr(runtime, _GET_LIMIT)
        except AttributeError:  # another TVM, with `check_versions=False`
            os.environ["TVM_NUM_THREADS"] = str(count)
            self._set_limit, self._get_limit = _ignore, lambda: count
        self._turn = threading.Lock()
        _all.add(self)

    def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Return ``function(*arguments)``, called with the thread limit set."""
        if self.count > 1:
            with self._turn:
                return self._call_with_pool(function, arguments)
        before = self._get_limit()
        if before == 1:
            return function(*arguments)
        self._set_limit(1)
        try:
            return function(*arguments)
        finally:
            self._set_limit(before)

    def renew_after_fork(self) -> None:
        """Renew the lock in a forked process, where the thread that held it does not exist."""
        self._turn = threading.Lock()

    def _call_with_pool(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        if _may_have_pool():
            before = self._get_limit()
            self._set_limit(self.count)
            try:
                # Asking for the pool's size makes a pool of the limit's size if there is none.
                if self._pool_size() != self.count:
                    self._configure(
                        _DEFAULT_AFFINITY, self.count
                    )  # uses fewer of its threads, and unsets the limit
                    self._set_limit(self.count)
                _here.has_pool = True
                if self._pool_size() == self.count or _here.is_ours:
                    return function(*arguments)
            finally:
                self._set_limit(before)
        return _our_thread(self.count).submit(self._call_with_pool, function, arguments).result()


def _ignore(limit: int) -> None:
    """Replace a function that this TVM lacks."""


def threads_of(library: Any, count: int) -> LibraryThreads | TvmThreads:
    """Return what runs a loaded library's functions on `count` threads."""
    try:
        set_threads = library.get_function(SET_THREADS, query_imports=True)
    except AttributeError:
        return TvmThreads(count)
    return LibraryThreads(count, set_threads)


class _Here(threading.local):
    """State of the calling thread."""

    is_ours = False
    has_pool = False
    pool_is_gone = False


_here = _Here()
_all: weakref.WeakSet[LibraryThreads | TvmThreads] = weakref.WeakSet()
_ours: dict[int, ThreadPoolExecutor] = {}
_callers: list[threading.Thread] = []  # the one with a pool


def _may_have_pool() -> bool:
    if _here.is_ours or (_here.has_pool and not _here.pool_is_gone):
        return True
    if _here.pool_is_gone or any(thread.is_alive() for thread in _callers):
        return False
    _callers[:] = [threading.current_thread()]
    return True


def _our_thread(count: int) -> ThreadPoolExecutor:
    """Return this module's thread whose pool has this size."""
    if count not in _ours:
        name = f"tunefarm-pool-of-{count}"
        pool = ThreadPoolExecutor(
            1, thread_name_prefix=name, initializer=setattr, initargs=(_here, "is_ours", True)
        )
        return _ours.setdefault(count, pool)
    return _ours[count]


def _after_fork() -> None:
    _here.pool_is_gone = _here.has_pool
    _ours.clear()
    _callers.clear()
    for threads in list(_all):
        threads.renew_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
