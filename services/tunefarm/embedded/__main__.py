"""The supervisor's process: ``python -m tunefarm.embedded --home DIR``. Writes a JSON line per event."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tunefarm.embedded import valkey
from tunefarm.embedded.home import FarmHome
from tunefarm.embedded.options import FarmEvent, FarmOptions
from tunefarm.embedded.processes import Facts, all_processes
from tunefarm.embedded.supervisor import Supervisor
from tunefarm_tuning.core.errors import InvariantError, TunefarmError
from tunefarm_tuning.process.lifeline import forbid_inspection
from tunefarm_tuning.process.listening import listen


def main(argv: Sequence[str] | None = None) -> int:
    """Run a farm until SIGTERM, SIGINT or the end of standard input; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tunefarm.embedded", description="Run a farm on this machine."
    )
    parser.add_argument(
        "--home", type=Path, help="the farm's folder (default: $TUNEFARM_HOME, else in the user's data)"
    )
    parser.add_argument(
        "--options", type=FarmOptions.from_text, default=FarmOptions(), help="JSON of `FarmOptions`"
    )
    parser.add_argument("--with-stdin", action="store_true", help="end when standard input ends")
    arguments = parser.parse_args(argv)
    forbid_inspection()
    emit = _events()
    os.umask(0o077)  # only the owner may read the farm's files
    try:
        home = FarmHome(arguments.home)
        home.prepare()
        lock = home.lock()
        listen(arguments.options.host, arguments.options.port, backlog=1).close()
        wait = _wait_for_end(with_stdin=arguments.with_stdin)
        facts = Facts(home=home, options=arguments.options, valkey_server=valkey.find_server())
        if arguments.with_stdin:
            _log_errors(home)
        Supervisor(all_processes(), facts, environment=os.environ, emit=emit, wait=wait).run()
        os.close(lock)
    except TunefarmError as error:
        _fail(emit, error)
        return 1
    except OSError as error:
        _fail(emit, InvariantError(f"the farm cannot run: {error}", code="farm-failed"))
        return 1
    return 0


def _fail(emit: Callable[[FarmEvent], None], error: TunefarmError) -> None:
    emit(FarmEvent(kind="failed", message=error.message, data={"error": error.to_json()}))


def _events() -> Callable[[FarmEvent], None]:
    """Reserve standard output for events. A reader that does not read loses events but blocks nothing."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    os.set_blocking(descriptor, False)

    def emit(event: FarmEvent) -> None:
        with contextlib.suppress(OSError):
            os.write(descriptor, event.to_text().encode() + b"\n")

    return emit


def _log_errors(home: FarmHome) -> None:
    """Write errors into a log, too: nobody may be looking at the owner's terminal."""
    log = home.open_log("farm")
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)


def _wait_for_end(*, with_stdin: bool) -> Callable[[float], bool]:
    """Return a function that sleeps, and returns whether the farm must end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def end(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writing, b"x")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select([reading, 0] if with_stdin else [reading], [], [], seconds)
        return reading in ready or (0 in ready and not os.read(0, 4096))

    return wait


if __name__ == "__main__":
    sys.exit(main())
