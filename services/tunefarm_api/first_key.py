"""The first API key: created at the first start, and kept in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import structlog

from tunefarm_app.access.api_keys import create_api_key, verify_api_key
from tunefarm_app.runtime.composition import Services

log = structlog.stdlib.get_logger(__name__)


def ensure_key_file(services: Services, path: Path) -> None:
    """Make sure that `path` holds a valid key. If not, write a new one with all scopes, mode 0600."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        text = ""
    if verify_api_key(services, text) is not None:
        return
    _key, text = create_api_key(services, name=path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written to a temporary file and renamed: nobody sees half a key, and the mode is right from the first byte.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    part.replace(path)
    log.info("api key made", path=str(path))
