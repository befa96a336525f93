"""The options of an embedded farm, and the events that it reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

DEVICE_KEY = "local"
"""The pool that this machine's own device is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmOptions:
    """Options of an embedded farm.

    Attributes:
        host: Address that the API listens on.
        port: Port of the API; 0 takes a free port.
        device_key: Pool that this machine joins as a device.
        device_name: Name of the device; None for the host's name.
        target: Target of the device, in any form that `parse_target` reads.
        concurrency: Number of steps that the worker runs at once; None for the worker's default.
        settings: Settings of the API and the worker, by name without ``TUNEFARM_`` (``{"ROUND_SIZE": "16"}``).
    """

    host: str = "127.0.0.1"
    port: int = 0
    device_key: str = DEVICE_KEY
    device_name: str | None = None
    target: str = "host"
    concurrency: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the options as text for `from_text` (a command-line argument)."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmEvent:
    """An event of the farm.

    Attributes:
        kind: ``starting``, ``up``, ``died``, ``ready`` (every process is up), ``failed`` (the farm gives up), ``stopping``
            or ``stopped``.
        part: The process of the farm; empty for the whole farm.
        message: In words, for people.
        data: Facts for programs: the API's ``url``, an error's ``code``.
    """

    kind: str
    part: str = ""
    message: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        return cls(**json.loads(text))
