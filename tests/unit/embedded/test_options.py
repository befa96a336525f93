"""The options that the handle passes to the supervisor."""

from __future__ import annotations

from tunefarm.embedded.options import FarmEvent, FarmOptions


def test_options_round_trip() -> None:
    options = FarmOptions(port=8000, device_key="lab", settings={"ROUND_SIZE": "4"}, concurrency=1)
    assert FarmOptions.from_text(options.to_text()) == options


def test_events_round_trip() -> None:
    event = FarmEvent(kind="died", part="api", message="the api ended\nbadly", data={"log": "/x"})
    assert "\n" not in event.to_text()
    assert FarmEvent.from_text(event.to_text()) == event
