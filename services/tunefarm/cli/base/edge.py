"""Turn every error of a command into a sentence and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import termios
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from tunefarm.cli.base import exit_codes
from tunefarm.cli.base.extras import advice
from tunefarm.cli.base.output import Output

_SERVER_BUG = "internal"
"""The server asks for the `request_id` of such an error: its log has the details."""


class Exit(BaseException):
    """Ends the command with an exit code. Messages are printed already. Only `run` catches it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Terminated(BaseException):
    """SIGTERM arrived, or SIGHUP because the terminal was closed: clean up and go."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(output: Output, command: Callable[[], None]) -> int:
    """Run a command and return its exit code; errors are explained on standard error.

    With ``--json``, an error is also an object on standard output: ``{"error": {"code", "message", ...}}``.
    """
    try:
        with _ends_raise():
            command()
    except Exit as done:
        return done.code
    except BrokenPipeError:
        # The reader (`| head`) has closed the pipe. Python's flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except KeyboardInterrupt:
        output.note("interrupted")
        return exit_codes.INTERRUPTED
    except Terminated as end:
        output.note("terminated" if end.number == signal.SIGTERM else "the terminal was closed")
        return exit_codes.TERMINATED if end.number == signal.SIGTERM else exit_codes.HUNG_UP
    except Exception as error:  # noqa: BLE001  (this is the edge)
        _explain(output, error)
        return exit_codes.exit_code(error)
    return exit_codes.OK


def describe(error: Exception) -> dict[str, Any]:
    """Return an error's code, message and fields."""
    message = getattr(error, "message", None) or getattr(error, "detail", None)
    code = getattr(error, "code", None)
    if isinstance(message, str) and isinstance(code, str):
        return {"code": code, "message": message, **dict(getattr(error, "fields", {}))}
    if isinstance(error, ModuleNotFoundError) and (hint := advice(error)):
        return {"code": "not-installed", "message": hint}
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return {"code": "os-error", "message": f"{where}{error.strerror or error}"}
    return {
        "code": "internal",
        "message": f"{type(error).__name__}: {error} (a bug in tunefarm; --debug shows where)",
    }


def _explain(output: Output, error: Exception) -> None:
    if output.debug:
        traceback.print_exc()
    problem = describe(error)
    if output.json:
        with suppress(BrokenPipeError):
            output.data({"error": problem})
    for line in f"error: {problem['message']}".splitlines():
        output.note(line, style="red")
    if problem["code"] == _SERVER_BUG and problem.get("request_id"):
        output.note(f"request_id: {problem['request_id']}", style="red")


@contextmanager
def _ends_raise() -> Iterator[None]:
    """Make SIGTERM and SIGHUP unwind the stack, so that `with` blocks end what they started. ``nohup`` stays in force."""

    def handle(number: int, _frame: FrameType | None) -> None:
        _leave_dead_terminal()
        raise Terminated(number)

    heard = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_dead_terminal() -> None:
    """Replace standard streams whose terminal is gone: what is said while cleaning up would fail there."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        try:
            termios.tcgetattr(stream.fileno())
        except termios.error as error:
            if error.args[0] == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_RDWR), stream.fileno())
        except (OSError, ValueError):  # closed, or no file
            continue
