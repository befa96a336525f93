"""Turning an enrolment token into the device's own credential, which outlives the agent in its folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tunefarm_tuning.errors import InvalidInputError, TransientError
from tunefarm_workers.device.api_client import ApiClient
from tunefarm_workers.device.backoff import Backoff
from tunefarm_workers.device.settings import CREDENTIAL_FILE, AgentSettings

log = logging.getLogger("tunefarm.device")


def credential(settings: AgentSettings, wait: Callable[[float], bool]) -> str | None:
    """Return what to speak to the API with; enrols first where there is a token. None where `wait` says to stop.

    A token that was used before does no harm to a device that has its credential: an agent can be started with the same
    command again and again.

    Raises:
        InvalidInputError: If the token is refused, and there is no credential.
    """
    if settings.token is None:
        return settings.api_key
    backoff = Backoff(first_sec=0.5, most_sec=10.0)
    with closing(ApiClient(settings.url, settings.token)) as api:
        while True:
            try:
                key = api.enrol(settings.name, settings.device_key)
                break
            except InvalidInputError as error:
                if settings.api_key is None:
                    raise
                log.info("not enrolled again: %s", error.message)
                return settings.api_key
            except TransientError as error:
                if settings.api_key is not None:
                    return settings.api_key
                wait_sec = backoff.next_sec()
                log.warning("%s; trying to enrol again in %.1f s", error.message, wait_sec)
                if wait(wait_sec):
                    return None
    _keep(settings.work_dir / CREDENTIAL_FILE, key)
    log.info("enrolled as %s in pool %s", settings.name, settings.device_key)
    return key


def _keep(path: Path, key: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
