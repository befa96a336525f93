"""The pages in this process, with a farm that the test drives: a real database and store, no broker."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from app_farm import Farm, farm_settings, make_farm
from page_browser import Browser

from tunefarm_api.app import create_app
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.settings import Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would rather have httpx2 than httpx; either serves here
    from starlette.testclient import TestClient


@pytest.fixture(scope="session")
def settings_in() -> Callable[[Path], Settings]:
    """A function that returns the settings of a farm in a folder."""
    return partial(
        farm_settings,
        device_retry_sec=0.01,
        lease_sec=30.0,
        step_turn_sec=0,
        step_chain_sec=0,
        max_upload_bytes=100_000,
    )


@pytest.fixture
def settings(settings_in: Callable[[Path], Settings], tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def farm(settings: Settings) -> Iterator[Farm]:
    farm = make_farm(settings)
    yield farm
    farm.services.close()


@pytest.fixture
def stranger(settings: Settings, farm: Farm) -> Iterator[Browser]:
    """A browser that has not signed in."""
    app = create_app(settings, reconcile=False)
    with TestClient(app, raise_server_exceptions=False) as client:
        app.state.services = farm.services
        yield Browser(client)


@pytest.fixture
def key(farm: Farm) -> str:
    """The text of a key that may do everything."""
    return create_api_key(farm.services, name="the owner")[1]


@pytest.fixture
def browser(stranger: Browser, key: str) -> Browser:
    """A browser that has signed in with all scopes."""
    assert stranger.sign_in(key).status_code == 200
    return stranger
