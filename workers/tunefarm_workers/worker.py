"""A worker process: ``python -m tunefarm_workers.worker --queues import,tune,compile,draft --concurrency 2``."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import sys

import structlog
from celery.signals import worker_ready, worker_shutting_down

from tunefarm_app.identity.signing import SigningKey
from tunefarm_app.runtime.dispatch import QUEUES
from tunefarm_app.runtime.logs import configure_logging
from tunefarm_app.settings import load_settings
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process.lifeline import forbid_inspection
from tunefarm_tuning.process.sandbox import check_sandbox
from tunefarm_workers.celery_app import make_worker_app
from tunefarm_workers.drain import drain_file

log = structlog.stdlib.get_logger(__name__)

DEFAULT_CONCURRENCY = 2
"""Two steps at once, so that imports and tuning rounds need not wait for a compile of many minutes."""


def main(argv: list[str] | None = None) -> int:
    """Run until told to stop; return the exit code."""
    options = _parse(argv)
    forbid_inspection()
    try:
        settings = load_settings()
        check_sandbox()
        if settings.signing_key is not None:
            SigningKey.read(settings.signing_key)
    except InvalidInputError as error:
        print(f"worker: {error.message}", file=sys.stderr)
        return 2
    configure_logging(settings.log_level, role="worker")
    app = make_worker_app(settings)
    app.set_current()  # `shared_task` needs it
    node = f"{options.name}@{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    log.info("worker starts", node=node, queues=options.queues, settings=settings.redacted())

    def ready(**_: object) -> None:
        log.info("worker is ready", node=node)

    worker_ready.connect(ready, weak=False)
    with drain_file() as path:

        def stop(**_: object) -> None:
            path.touch(mode=0o600)

        worker_shutting_down.connect(stop, weak=False)
        worker = app.Worker(
            hostname=node,
            queues=options.queues,
            concurrency=options.concurrency,
            loglevel=settings.log_level,
            quiet=True,  # the banner prints the broker's address
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        worker.start()
        return int(worker.exitcode or 0)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tunefarm_workers.worker", description=__doc__)
    parser.add_argument(
        "--queues",
        type=_queues,
        default=list(QUEUES),
        metavar="LIST",
        help=f"queues to serve, comma-separated: {', '.join(QUEUES)} (default: all)",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        default=DEFAULT_CONCURRENCY,
        metavar="N",
        help="number of steps at once (default: %(default)s)",
    )
    parser.add_argument("--name", default="tunefarm", help="prefix of the node's name")
    return parser.parse_args(argv)


def _queues(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - set(QUEUES))
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"the queues are {', '.join(QUEUES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
