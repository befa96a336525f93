"""Fixtures of all unit tests."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True)
def _log_as_by_default() -> None:
    """Forget how tests of whole servers, earlier in this process, had the log written."""
    structlog.reset_defaults()
