"""Read an agent's report about its machine, with checks: an agent may report anything."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from tunefarm_app.storage.json_text import UNSTORABLE
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

Info = Mapping[str, Any]
_NOTHING: Info = {}
_MOST_BYTES = 64 << 10
"""A device with eight GPUs has about 10 KB; each heartbeat stores it, and each list of devices returns it."""


def check_info(info: Info) -> None:
    """Refuse what cannot be stored as JSON in every database, or is longer than a description of a machine.

    Raises:
        InvalidInputError: ``invalid-device``.
    """
    try:
        text = json.dumps(info, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (
        ValueError,
        TypeError,
        RecursionError,
    ):  # NaN, half of a character, a number of thousands of digits
        raise _bad_info("has a value that JSON in UTF-8 cannot hold, as NaN") from None
    if UNSTORABLE.search(text):
        raise _bad_info("has a NUL character")
    if size > _MOST_BYTES:
        raise _bad_info(f"has {size} bytes as JSON; {_MOST_BYTES} are enough to describe a machine")


def _bad_info(why: str) -> InvalidInputError:
    return InvalidInputError(f"the device's info {why}", code="invalid-device", field="info")


def mapping(value: object) -> Info:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else _NOTHING


def number(value: object, most: float = sys.float_info.max) -> float | None:
    """Return the value if it is a number of at most this magnitude."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= most else None  # refuses nan, and integers of any size


def whole(value: object) -> int | None:
    """Return the value if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def agent_of(info: Info) -> Info:
    """Return the agent's status in a device's `info`."""
    return mapping(info.get("agent"))


def sessions_of(info: Info) -> tuple[str, bool]:
    """Return who runs a device's sessions, in words, and whether that is root; no words if its agent does not say."""
    sessions = mapping(agent_of(info).get("sessions"))
    user, own, why = (clean(str(sessions.get(name) or ""), 200) for name in ("user", "agent", "why"))
    if not user:
        return "", False
    if user != own:
        return f"{user}, another user than the agent's", False
    return f"{user}, the agent's own user" + (f" ({why})" if why else ""), user == "root"


def gpus_of(report: Info) -> list[Info]:
    """Return the GPUs in a device's `info`, or in the agent's status."""
    gpus = report.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []


def first_gpu(report: Info) -> Info:
    """Return the first GPU; an empty object if there is none."""
    return next(iter(gpus_of(report)), _NOTHING)


def load_of(agent: Info, most: float = sys.float_info.max) -> float | None:
    """Return the machine's load average over the last minute."""
    loads = agent.get("load")
    return number(loads[0], most) if isinstance(loads, list) and loads else None
