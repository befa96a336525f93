"""Secrets that the API creates at its start, in files that only their owner can read: the first API key, and a device's enrolment token."""

from __future__ import annotations

from pathlib import Path

import structlog

from tunefarm_app.access.api_keys import create_api_key, verify_api_key
from tunefarm_app.devices.enrolment import create_enrolment_token
from tunefarm_app.runtime.composition import Services
from tunefarm_tuning.core.output_file import write_durably

log = structlog.stdlib.get_logger(__name__)

_TOKEN_VALID_SEC = 86_400.0


def ensure_key_file(services: Services, path: Path) -> None:
    """Make sure that `path` holds a valid key. If not, write a new one with all scopes, mode 0600."""
    if verify_api_key(services, _text(path)) is not None:
        return
    _key, text = create_api_key(services, name=path.name)
    _write(path, text)
    log.info("api key made", path=str(path))


def ensure_device_token_file(services: Services, path: Path, device_name: str) -> None:
    """Make sure that `path` holds an unused enrolment token for a device that starts beside this API. If not, write a new one, mode 0600.

    A device that has its credential does not need it. One that lost it, or whose farm was restored, gets another.

    Raises:
        InvalidInputError: ``invalid-device``.
    """
    token = verify_api_key(services, _text(path))
    if token is not None and token.rotated_at is None:
        return
    _key, text = create_enrolment_token(services, device_name=device_name, valid_sec=_TOKEN_VALID_SEC)
    _write(path, text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, text + "\n", mode=0o600)
