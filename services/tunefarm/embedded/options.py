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
    """How to run a farm.

    Attributes:
        host: Address that the API listens on.
        port: Its port; 0 takes a free one.
        device_key: The pool that this machine joins as a device.
        device_name: Its name in there; the host's name where it is None.
        target: What the device runs, in any form that `parse_target` reads.
        concurrency: Steps that the worker runs at once; the worker's own default where it is None.
        settings: More settings of API and worker, by their name without ``TUNEFARM_`` (``{"ROUND_SIZE": "16"}``).
    """

    host: str = "127.0.0.1"
    port: int = 0
    device_key: str = DEVICE_KEY
    device_name: str | None = None
    target: str = "host"
    concurrency: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return what `from_text` reads (a command-line argument)."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmEvent:
    """Something that happened to the farm.

    Attributes:
        kind: ``starting``, ``up``, ``died``, ``ready`` (every part is up), ``failed`` (the farm gives up), ``stopping`` or
            ``stopped``.
        part: Which part it happened to; empty for the whole farm.
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
