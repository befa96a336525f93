"""`ChildProcess`: calls into a child process, with limits."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from tunefarm_tuning.core.cancellation import Cancellation, Closing
from tunefarm_tuning.core.errors import InvariantError, TunefarmError
from tunefarm_tuning.core.spans import Span, SpanKind, current_log, span
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.disk_watch import DISK_WATCH, WriteLimits, write_limit
from tunefarm_tuning.process.errors import (
    ChildClosed,
    ChildCrashed,
    ChildOutOfDisk,
    ChildOutOfMemory,
    ChildTimedOut,
    stated_error,
)
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.process.running import RunningChild
from tunefarm_tuning.process.sandbox import Access, SandboxState
from tunefarm_tuning.process.warm import WARM, EarlyChild

START_TIMEOUT_SEC = 180.0
"""Time for the interpreter and the module's imports (seconds; a minute on a small board); a call's clock starts after."""

_MEMORY_WORDS = ("bad_alloc", "MemoryError", "Cannot allocate memory", "LLVM ERROR: out of memory")


class ChildProcess(Closing):
    """Calls into a child process, which is started at the first call and again after a failure.

    Ordering: one call at a time; `start_call` then `finish_call` is a call in two halves.
    Concurrency: one caller, but `close` and `kill` may come from any thread, also during a call.
    Failure: a call raises the handler's own `TunefarmError`, or `ChildFailed` where the child gave no answer;
        the next call starts a fresh child either way.
    Ownership: the child leads a session and process group of its own. `close` and `kill` end the whole group; should
        this process die without them, the kernel does (see `lifeline`).

    Args:
        module: Module with ``HANDLERS: dict[str, Callable[[dict], Any]]``, imported in the child alone.
        access: What it may touch (see `sandbox`); None for a child that reads nothing of a stranger's: it has no sandbox.
        env: Added to the environment (which the child gets without its secrets).
        early: Where the first child comes from, if it waits there; whoever made it closes it.
    """

    def __init__(
        self,
        module: str,
        *,
        limits: ChildLimits = ChildLimits(),  # noqa: B008  (frozen)
        access: Access | None = Access(),  # noqa: B008  (frozen)
        env: Mapping[str, str] | None = None,
        early: EarlyChild | None = None,
    ) -> None:
        self._module = module
        self._early = early
        self._limits = limits
        self._access = access
        self._write_limits = WriteLimits(total_bytes=write_limit())
        self._env = dict(env or {})
        self._lock = threading.Lock()
        self._running: RunningChild | None = None
        self._is_ready = False
        self._sandbox: SandboxState | None = None
        self._relay_key: str | None = None
        self._in_call = False
        self._closed = False
        # The running call's name, and its begin in Unix seconds and on the monotonic clock.
        self._called = ("", 0.0, 0.0)

    @property
    def alive(self) -> bool:
        """Whether a child is running now."""
        running = self._running
        return running is not None and not running.ended

    @property
    def pid(self) -> int | None:
        """The id of the child's process and process group; None if none is running."""
        running = self._running
        return running.pid if running is not None else None

    @property
    def sandbox(self) -> SandboxState | None:
        """The sandbox of the last child that was started; None before."""
        return self._sandbox

    @property
    def relay_key(self) -> str | None:
        """The public key of the relay of the last child that was started; None without a relay to a gateway.

        The child said it before its first call, so before it has read anything of a stranger's.
        """
        return self._relay_key

    def allow(self, *folders: Path) -> bool:
        """Let the child read these folders. Return whether a running child was ended for it: its successor may.

        For what is not known yet when this object is made.
        """
        with self._lock:
            access = self._access
            missing = [] if access is None else [path for path in folders if path not in access.reads]
            if access is None or not missing:
                return False
            self._access = replace(access, reads=(*access.reads, *dict.fromkeys(missing)))
            ends = self._running is not None
        self.kill()
        return ends

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `finish_call` would not wait."""
        if self._running is None:
            raise InvariantError("no call has been started")
        return self._running.replies

    def call(self, method: str, params: Mapping[str, Any], *, timeout_sec: float) -> Any:
        """Call a handler and return its value.

        Args:
            method: The handler's name in the module's table.
            params: Its argument; JSON-able.
            timeout_sec: Wall-clock from when the child is ready; starting it is not counted.

        Raises:
            TunefarmError: What the handler raised; any other exception of it as `InvariantError`.
            ChildFailed: If the child crashed, ran out of time or memory, or was closed.
        """
        self.start_call(method, params)
        return self.finish_call(timeout_sec=timeout_sec)

    def start(self) -> None:
        """Start the child, if none is running, and wait until it is ready; `call` does so by itself.

        Raises:
            TunefarmError: If the module cannot be imported, or the child dies of it: nobody's call is to blame.
        """
        self._end_call(self._begin(), keep=True)

    def spawn(self) -> None:
        """Start the child, if none is running, without waiting: the next call waits, and says what went wrong."""
        with self._lock, contextlib.suppress(TunefarmError):
            self._check_open()
            if self._running is None:
                self._running, self._is_ready = self._start(), False

    def start_call(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a call; waits only if a child must be started.

        Raises:
            ChildFailed: If the child could not be started or is gone.
        """
        message = {"method": method, "params": params, "spans": current_log() is not None}
        request = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        running = self._begin()
        self._called = (method, time.time(), time.monotonic())
        deadline = time.monotonic() + START_TIMEOUT_SEC
        try:
            running.write(request, deadline=deadline)
        except TimeoutError:
            self._timed_out(running, f"did not take a call within {START_TIMEOUT_SEC:.0f} s")
        except BrokenPipeError:
            self._died(running)

    def finish_call(self, *, timeout_sec: float) -> Any:
        """Wait for the value of the call that `start_call` sent (see `call`)."""
        with self._lock:
            running = self._running
            if running is None or not self._in_call:
                raise InvariantError("no call has been started")
        try:
            value = self._receive(running, timeout_sec)
        finally:
            self._note_call(running.pid)
        self._end_call(running, keep=True)
        return value

    def kill(self) -> None:
        """End the child, if there is one; the next call starts a new one."""
        with self._lock:
            running = self._running
            if running is None:
                return
            running.kill()
            if not self._in_call:  # otherwise the caller reads the pipes' end and releases them
                self._running = None
                running.release()

    def close(self) -> None:
        """End the child for good. A call that waits in another thread raises `ChildClosed`, as do later ones."""
        self._closed = True
        self.kill()

    def _begin(self) -> RunningChild:
        """Return a child that is ready, and mark it as in a call."""
        with self._lock:
            self._check_open()
            if self._in_call:
                raise InvariantError("a call is under way already")
            running = self._running
            if running is not None and running.ended:  # killed from outside between two calls
                running.kill()
                running.release()
                self._running = None
                self._check_disk(running)
                running = None
            self._in_call = True
            if running is None:
                try:
                    running = self._start()
                except BaseException:
                    self._in_call = False
                    self._running = None
                    raise
                self._running, self._is_ready = running, False
        if not self._is_ready:
            try:
                with span(f"start {self._name}", SpanKind.START):
                    state = self._receive(running, START_TIMEOUT_SEC)
                self._sandbox = SandboxState.from_json(state["sandbox"])
                self._relay_key = state["relay_key"]
            except TunefarmError:
                self.kill()  # a child without its module is useless: the next call starts a new one
                raise
            self._is_ready = True
        return running

    def _start(self) -> RunningChild:
        early = None if self._early is None else self._early.take()
        running = early or WARM.take(self._module) or RunningChild(env=self._env)
        try:
            running.give_order(self._module, limits=self._limits, access=self._access, env=self._env)
        except BaseException:
            running.kill()
            running.release()
            raise
        if self._access is not None and self._access.writes:
            DISK_WATCH.add(running, self._access.writes, self._write_limits)
        return running

    def _receive(self, running: RunningChild, timeout_sec: float) -> Any:
        """Return the next reply's value; without one, end the call and raise."""
        try:
            line = running.read_line(
                deadline=time.monotonic() + timeout_sec, max_bytes=self._limits.reply_bytes
            )
            reply = _reply(line)
            self._note_spans(reply)
            error = self._stated(reply["error"]) if reply and "error" in reply else None
        except TimeoutError:
            self._timed_out(running, f"was not done within {timeout_sec:g} s")
        except (ValueError, TypeError, AttributeError, RecursionError):
            self._end_call(running, keep=False)
            raise ChildCrashed(f"{self._name} sent an answer that cannot be read") from None
        except BaseException:  # after an interrupt, the next call must not read this call's answer
            self._end_call(running, keep=False)
            raise
        if reply is None:
            self._died(running)
        if error is not None:
            self._end_call(running, keep=True)
            raise error
        if "out_of_memory" in reply:
            self._end_call(running, keep=False)  # its memory may be fragmented
            raise ChildOutOfMemory(
                f"{self._name} ran out of memory: {clean(str(reply['out_of_memory']), 300)}",
                limit_bytes=self._limits.memory_bytes,
            )
        return reply.get("value")

    def _stated(self, error: Mapping[str, Any]) -> TunefarmError:
        access = self._access
        return stated_error(error, may_blame_device=access is None or access.device is not None or access.gpu)

    def _note_call(self, pid: int) -> None:
        if (log := current_log()) is None:
            return
        method, began, started = self._called
        name = f"{self._module.rpartition('.')[2]}: {method}"
        sec = time.monotonic() - started
        log.add([Span(name=name, kind=SpanKind.CALL, began=began, sec=sec, process=pid)])

    @staticmethod
    def _note_spans(reply: dict[str, Any] | None) -> None:
        """Take over the spans that a child noted during the call."""
        if (log := current_log()) is not None and reply is not None:
            log.add([Span.from_json(noted) for noted in reply.get("spans", ())])

    def _end_call(self, running: RunningChild, *, keep: bool, grace_sec: float = 0.0) -> int | None:
        """End the call and, unless it is kept, the child; return the child's code if it has ended."""
        if not keep:
            running.wait(grace_sec)
        with self._lock:
            self._in_call = False
            if keep and not running.ended:
                return None
            code = running.kill()
            self._running = None
            running.release()
            return code

    def _check_open(self) -> None:
        if self._closed:
            raise ChildClosed(f"{self._name} has been closed")

    def _check_disk(self, running: RunningChild) -> None:
        if running.overfull is not None:
            raise ChildOutOfDisk(
                f"{self._name} {running.overfull}", limit_bytes=self._write_limits.total_bytes
            )

    @property
    def _name(self) -> str:
        return f"the {self._module.rpartition('.')[2]} process"

    def _timed_out(self, running: RunningChild, failure: str) -> NoReturn:
        self._end_call(running, keep=False)
        self._check_open()
        raise ChildTimedOut(f"{self._name} {failure}", detail=running.errors.last_lines(wait_sec=1.0))

    def _died(self, running: RunningChild) -> NoReturn:
        # Wait for its own signal or exit code, which is more useful than our SIGKILL.
        code = self._end_call(running, keep=False, grace_sec=2.0)
        self._check_open()
        self._check_disk(running)
        detail = running.errors.last_lines(wait_sec=1.0)
        text = running.errors.text()
        signal_name = _signal_name(-code) if code is not None and code < 0 else None
        exit_code = code if signal_name is None else None
        if signal_name == "SIGXCPU":
            limit = self._limits.cpu_sec
            raise ChildTimedOut(
                f"{self._name} used more than {limit} CPU seconds", detail=detail, limit_cpu_sec=limit
            )
        if signal_name == "SIGKILL" or any(word in text for word in _MEMORY_WORDS):
            raise ChildOutOfMemory(
                f"{self._name} was killed, most likely for memory ({signal_name or f'exit code {exit_code}'})",
                detail=detail,
                limit_bytes=self._limits.memory_bytes,
            )
        raise ChildCrashed(
            f"{self._name} died ({signal_name or f'exit code {exit_code}'})",
            detail=detail,
            signal_name=signal_name,
            exit_code=exit_code,
        )


def _reply(line: bytes | None) -> dict[str, Any] | None:
    """Return what a child answered; None if its output has ended."""
    reply = None if line is None else json.loads(line)
    if line is not None and not isinstance(reply, dict):
        raise ValueError("an answer that is no object")
    return reply


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def call_in_child(
    module: str,
    method: str,
    params: Mapping[str, Any],
    *,
    limits: ChildLimits = ChildLimits(),  # noqa: B008  (frozen)
    access: Access | None = Access(),  # noqa: B008  (frozen)
    timeout_sec: float,
    env: Mapping[str, str] | None = None,
    cancellation: Cancellation | None = None,
) -> Any:
    """Call a handler in a child of its own (see `ChildProcess.call`), which `cancellation` closes."""
    with (
        ChildProcess(module, limits=limits, access=access, env=env) as child,
        (cancellation or Cancellation()).attach(child),
    ):
        return child.call(method, params, timeout_sec=timeout_sec)
