"""The gateway as a process: ``python -m tunefarm_workers.gateway --dir DIR --host 0.0.0.0 --port 9443``.

Prints one JSON line, ``{"host": ..., "port": ...}``, as soon as it listens. It needs the folder ``gateway`` of the farm's keys
(``TUNEFARM_GATEWAY_DIR``), which the API makes at its first start, and waits for it; nothing else of the farm.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import signal
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tunefarm_app.identity.receipts import ReceiptSigner
from tunefarm_app.identity.tickets import TicketReader
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.process.lifeline import forbid_inspection
from tunefarm_tuning.process.listening import listen
from tunefarm_workers.gateway.server import Gateway, server_context

log = logging.getLogger("tunefarm.gateway")

_BACKLOG = 128
_LOOK_SEC = 0.2
_NAMES = ("certificate.pem", "key.pem", "authority.pem", "tickets.pem", "receipts.key")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m tunefarm_workers.gateway", description="Run the gateway between workers and devices."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on; 0 takes a free port (default)"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=os.environ.get("TUNEFARM_GATEWAY_DIR"),
        metavar="DIR",
        help="the farm's folder of keys, of which it reads `gateway` (default: $TUNEFARM_GATEWAY_DIR)",
    )
    arguments = parser.parse_args(argv)
    if arguments.dir is None:
        parser.error("--dir or TUNEFARM_GATEWAY_DIR is needed")
    forbid_inspection()
    _allow_open_files()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # There is nothing to clean up. The handler is needed because PID 1 of a container has no default action.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    try:
        listener = listen(arguments.host, arguments.port, backlog=_BACKLOG)
    except TunefarmError as error:
        print(error.message, file=sys.stderr)
        return 1
    print(json.dumps({"host": arguments.host, "port": listener.getsockname()[1]}), flush=True)
    files = Files(arguments.dir / "gateway")
    # Connections wait meanwhile.
    files.wait()
    gateway = Gateway(files.context, files.tickets, files.receipts, started_at=time.time())
    # Signals reach Python between the calls of the first thread, which must not wait in `accept`.
    serving = threading.Thread(target=gateway.serve, args=(listener,), daemon=True)
    serving.start()
    serving.join()
    return 0


def _allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: a session takes two, and shells and systemd begin with 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Files:
    """The gateway's files. If they change, the next connection is greeted by the new ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_at: tuple[int, ...] | None = None
        self._context: ssl.SSLContext | None = None
        self._tickets: TicketReader | None = None
        self._receipts: ReceiptSigner | None = None

    def wait(self) -> None:
        """Wait until they are there."""
        is_told = False
        while not self._refresh():
            if not is_told:
                log.info("waiting for the API to make the keys in %s", self._folder)
                is_told = True
            time.sleep(_LOOK_SEC)

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings."""
        self._refresh()
        assert self._context is not None
        return self._context

    def tickets(self) -> TicketReader:
        """Return what checks tickets."""
        assert self._tickets is not None
        return self._tickets

    def receipts(self) -> ReceiptSigner:
        """Return what signs receipts."""
        assert self._receipts is not None
        return self._receipts

    def _refresh(self) -> bool:
        """Read the files if they have changed; return whether they were ever read. Half of a change is read again."""
        try:
            paths = [self._folder / name for name in _NAMES]
            changed_at = tuple(path.stat().st_mtime_ns for path in paths)
            if changed_at != self._read_at:
                context = server_context(*paths[:3])
                tickets, receipts = TicketReader.read(paths[3]), ReceiptSigner.read(paths[4])
                self._tickets, self._receipts = tickets, receipts
                self._context, self._read_at = context, changed_at
        except (OSError, ValueError) as error:
            if self._context is not None:
                log.warning("the keys in %s cannot be read again: %s", self._folder, error)
        return self._context is not None


if __name__ == "__main__":
    sys.exit(main())
