"""The API in a process that kills itself at a chosen point of creating a job: ``failing_api.py PORT [POINT:COUNT]``.

Points, in the order in which a request passes them: ``inserted`` (the job's row, in a transaction that is open),
``committing``, ``committed`` (nothing sent yet), ``sent`` (the client not answered yet). COUNT is how many jobs pass
before.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import count
from typing import Any

from sqlalchemy import Engine, event

from tunefarm_api.app import create_app
from tunefarm_api.gate import LOOPBACK_HOSTS
from tunefarm_api.server import serve, url_of
from tunefarm_app.runtime import composition
from tunefarm_app.runtime.dispatch import CeleryDispatcher
from tunefarm_app.runtime.logs import configure_logging
from tunefarm_app.settings import load_settings
from tunefarm_db.values import StepKind
from tunefarm_tuning.process.listening import listen

POINTS = ("inserted", "committing", "committed", "sent")


class Failpoint:
    """Kills the process when the chosen point is passed for the last time."""

    def __init__(self, point: str, passes: int) -> None:
        self._point = point
        self._passes = passes
        self._number = count()
        self._creating = threading.local()

    def begin(self) -> None:
        """Note that this thread creates a job."""
        self._creating.now = True

    def end(self) -> None:
        self._creating.now = False

    def passed(self, point: str) -> None:
        if (
            point == self._point
            and getattr(self._creating, "now", False)
            and next(self._number) >= self._passes
        ):
            os.kill(os.getpid(), signal.SIGKILL)


def arm(failpoint: Failpoint) -> None:
    """Look at every statement, commit and message of this process."""

    @event.listens_for(Engine, "after_cursor_execute")
    def _executed(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO jobs"):
            failpoint.begin()
            failpoint.passed("inserted")

    @event.listens_for(Engine, "commit")
    def _committing(_connection: Any) -> None:
        failpoint.passed("committing")

    @event.listens_for(Engine, "rollback")
    def _rolled_back(_connection: Any) -> None:
        failpoint.end()

    class Dispatcher(CeleryDispatcher):
        def send(self, step_id: str, kind: StepKind) -> bool:
            failpoint.passed("committed")
            sent = super().send(step_id, kind)
            failpoint.passed("sent")
            failpoint.end()
            return sent

    composition.CeleryDispatcher = Dispatcher  # type: ignore[misc]


def main(port: int, failpoint: str) -> None:
    settings = load_settings()
    configure_logging(settings.log_level, role="api")
    if failpoint:
        point, _, passes = failpoint.partition(":")
        arm(Failpoint(point, int(passes)))
    with listen("127.0.0.1", port) as listener:
        serve(create_app(settings, allowed_hosts=LOOPBACK_HOSTS), listener, url=url_of(listener, "127.0.0.1"))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
