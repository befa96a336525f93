"""The log of a farm process: a JSON object per line on standard error, with the current job and step.

The device agent writes lines of the same shape by itself (`tunefarm_workers.device.json_log`): it has no structlog.
"""

from __future__ import annotations

import logging
import sys

import structlog

OF_A_STEP = ("device_id", "device", "task", "workload_key")
"""Fields that a step's log lines get as soon as they are known, beside the ids."""


def configure_logging(level: str, *, role: str) -> None:
    """Send this process's log, structlog's and the standard library's, to standard error as JSON lines."""

    def add_role(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event["role"] = role
        return event

    shared: list[structlog.typing.Processor] = [
        add_role,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Not `dict_tracebacks`: it would write every frame's local variables, which include API keys and URLs.
                structlog.processors.ExceptionRenderer(
                    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
                ),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    for noisy in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
