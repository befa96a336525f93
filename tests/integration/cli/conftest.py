"""The real server for these tests, and the command connected to it."""

from __future__ import annotations

from typing import Any

import pytest
from replay_fixtures import client, farm
from typer.testing import CliRunner, Result

from tunefarm.cli.main import make_app

__all__ = ["client", "farm", "run"]

APP = make_app()


@pytest.fixture
def run(farm: Any) -> Any:
    """Run the command in this process, connected to the server."""
    env = {
        "TUNEFARM_URL": farm.url,
        "TUNEFARM_API_KEY": farm.api_key,
        "COLUMNS": "250",
        "TUNEFARM_DEBUG": None,
    }

    def run(*arguments: object, code: int = 0, **more: str | None) -> Result:
        result = CliRunner().invoke(APP, [str(a) for a in arguments], env={**env, **more})
        assert result.exit_code == code, result.output
        return result

    return run
