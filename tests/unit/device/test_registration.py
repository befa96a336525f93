"""The device's registration with the API, on a test clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError, TransientError
from tunefarm_workers.device.registration import Registration

STARTING = {"ready": False, "reason": "starting", "info": {}}
SERVING = {"ready": True, "reason": "", "info": {}}


class ScriptedApi:
    """An API that knows the device, has forgotten it, is away, or refuses it."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.knows = False
        self.registrations = 0
        self.heartbeats: list[Mapping[str, Any]] = []
        self.reason = ""

    def register(self, device: Mapping[str, Any]) -> str:
        if self.trouble:
            raise self.trouble
        self.knows = True
        self.registrations += 1
        return "dev_1"

    def heartbeat(self, device_id: str, body: Mapping[str, Any]) -> str:
        if self.trouble:
            raise self.trouble
        if not self.knows:
            raise NotFoundError("no such device")
        self.heartbeats.append(body)
        return self.reason


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.api = ScriptedApi()
        self.registration = Registration(self.api, {"name": "box"}, heartbeat_sec=5.0, clock=lambda: self.now)

    def run(self, seconds: float, status: Mapping[str, Any] = SERVING) -> None:
        for _ in range(int(seconds * 4)):
            self.registration.tick(status)
            self.now += 0.25


def test_it_registers_once_and_gives_signs_of_life() -> None:
    scene = Scene()
    scene.run(61)
    assert scene.api.registrations == 1
    assert 12 <= len(scene.api.heartbeats) <= 14
    assert scene.registration.confirmed


def test_news_goes_out_at_once() -> None:
    scene = Scene()
    scene.run(1, STARTING)
    scene.run(0.25, SERVING)
    assert scene.api.heartbeats == [STARTING, SERVING]


def test_why_the_farm_gives_no_work_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tunefarm.device")
    scene = Scene()
    scene.api.reason = "checking: no worker that looked can link for it: install lld"
    scene.run(61)
    said = [record.getMessage() for record in caplog.records if "the farm says" in record.getMessage()]
    assert said == [f"the farm says: {scene.api.reason}"]
    scene.api.reason = ""
    scene.run(61)
    scene.api.reason = "checking: no worker that looked can link for it: install lld"
    scene.run(61)
    assert len([record for record in caplog.records if "install lld" in record.getMessage()]) == 2
    scene.api.reason = "offline: the RPC server is starting"
    scene.run(1, STARTING)
    assert "the RPC server" not in caplog.text, "that was our own word"


def test_an_api_that_is_away_is_waited_for_ever_more_patiently() -> None:
    scene = Scene()
    scene.api.trouble = TransientError("away")
    scene.run(3600)
    assert scene.registration.device_id is None
    scene.api.trouble = None
    scene.run(15)
    assert scene.registration.confirmed


def test_its_id_outlives_an_outage() -> None:
    scene = Scene()
    scene.run(1)
    scene.api.trouble = TransientError("away")
    scene.run(60)
    assert scene.registration.device_id is not None
    assert not scene.registration.confirmed
    scene.api.trouble = None
    scene.run(15)
    assert scene.registration.confirmed
    assert scene.api.registrations == 1


def test_a_forgotten_device_registers_again() -> None:
    scene = Scene()
    scene.run(1)
    scene.api.knows = False
    scene.run(6)
    assert scene.api.registrations == 2
    assert scene.registration.confirmed


def test_a_refusal_ends_the_first_registration() -> None:
    scene = Scene()
    scene.api.trouble = InvalidInputError("no such key", code="refused")
    with pytest.raises(InvalidInputError, match="no such key"):
        scene.run(1)


def test_a_refusal_later_is_waited_out() -> None:
    scene = Scene()
    scene.run(1)
    scene.api.trouble = InvalidInputError("the key was revoked", code="refused")
    scene.run(60)
    scene.api.trouble = None
    scene.run(15)
    assert scene.registration.confirmed


def test_goodbye_survives_an_absent_api() -> None:
    scene = Scene()
    scene.run(1)
    scene.api.trouble = TransientError("away")
    scene.registration.say_goodbye(STARTING)
