"""The agent's log: JSON lines on standard error as the API and workers write them, without structlog."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime


class _JsonLines(logging.Formatter):
    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        line = {
            **self._fields,
            "event": record.getMessage(),
            "role": "device",
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_as_json(fields: Mapping[str, str]) -> None:
    """Send this process's log to standard error. Every line has `fields`, with their values at its time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(fields))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
