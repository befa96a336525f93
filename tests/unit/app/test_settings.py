from __future__ import annotations

import pytest

from tunefarm_app.runtime.composition import compose, for_requests
from tunefarm_app.runtime.dispatch import CeleryDispatcher, make_celery
from tunefarm_app.runtime.step_limits import (
    deadline_sec,
    hard_limit_sec,
    soft_limit_sec,
    visibility_timeout_sec,
)
from tunefarm_app.settings import load_settings, redact_url
from tunefarm_db.values import StepKind
from tunefarm_tuning.core.errors import InvalidInputError


def test_what_is_missing_or_wrong_is_named_and_no_value_is_shown(monkeypatch) -> None:
    for name in ("DATABASE_URL", "BROKER_URL", "STORE_DIR"):
        monkeypatch.delenv(f"TUNEFARM_{name}", raising=False)
    monkeypatch.setenv("TUNEFARM_BROKER_URL", "redis://:hunter2@h/0")
    monkeypatch.setenv("TUNEFARM_ROUND_SIZE", "secret-looking")
    with pytest.raises(InvalidInputError) as caught:
        load_settings()
    assert caught.value.code == "invalid-settings"
    for name in ("TUNEFARM_DATABASE_URL", "TUNEFARM_STORE_DIR", "TUNEFARM_ROUND_SIZE"):
        assert name in caught.value.message
    assert "hunter2" not in caught.value.message
    assert "secret-looking" not in caught.value.message


def test_passwords_are_not_shown(settings) -> None:
    changed = settings.model_copy(
        update={"broker_url": type(settings.broker_url)("redis://me:hunter2@host:1/0?x=hunter2")}
    )
    assert "hunter2" not in repr(changed)
    assert changed.redacted()["broker_url"] == "redis://me:***@host:1/0"
    assert redact_url("sqlite:////tmp/x.db") == "sqlite:////tmp/x.db"


@pytest.mark.parametrize("gateway", ["nohost", "h:0", "h:99999", ":1"])
def test_the_gateway_is_host_and_port(settings, gateway) -> None:
    with pytest.raises(InvalidInputError, match="GATEWAY"):
        load_settings(
            database_url="sqlite:///x",
            broker_url="redis://x",
            store_dir="/tmp",
            gateway=gateway,
            gateway_dir="/tmp",
        )


@pytest.mark.parametrize("variable", ["TUNEFARM_TRACKER", "TUNEFARM_FURTHER_TRACKERS"])
def test_who_names_a_tracker_is_told_of_the_gateway(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "lab:9190")
    with pytest.raises(InvalidInputError, match=f"{variable}: .* TUNEFARM_GATEWAY ") as caught:
        load_settings(database_url="sqlite:///x", broker_url="redis://x", store_dir="/tmp")
    assert caught.value.code == "invalid-settings"


def test_limits_grow_from_the_deadline_to_the_brokers_patience(settings) -> None:
    for kind in StepKind:
        assert deadline_sec(settings, kind) < soft_limit_sec(settings, kind) < hard_limit_sec(settings, kind)
    longest = max(hard_limit_sec(settings, kind) for kind in StepKind)
    assert visibility_timeout_sec(settings) >= 3 * longest


def test_the_visibility_timeout_is_the_same_in_all_three_settings(settings) -> None:
    """The shortest time-out of all programs on a broker wins, and Celery reads it from several settings."""
    conf = make_celery(settings, socket_timeout_sec=5.0).conf
    wanted = visibility_timeout_sec(settings)
    assert conf.visibility_timeout == wanted
    assert conf.broker_transport_options["visibility_timeout"] == wanted
    dispatcher = CeleryDispatcher(settings)
    try:
        assert dispatcher._app.conf.broker_transport_options["visibility_timeout"] == wanted
    finally:
        dispatcher.close()


def test_a_broker_that_is_away_costs_little_and_raises_nothing(settings) -> None:
    dispatcher = CeleryDispatcher(settings, socket_timeout_sec=0.5)  # port 1: nobody listens
    try:
        assert dispatcher.send("stp_x", StepKind.TUNE) is False
        assert dispatcher.send("stp_x", StepKind.TUNE) is False  # at once, for it rests now
        assert dispatcher.queue_length(StepKind.TUNE) is None
        assert dispatcher.ping() is False
    finally:
        dispatcher.close()


def test_who_waits_for_an_answer_waits_less_for_the_broker(settings) -> None:
    services = compose(settings)
    answering = for_requests(services)
    try:
        patience_sec = [
            composed.dispatcher._app.conf.broker_transport_options["socket_timeout"]
            for composed in (answering, services)
        ]
        assert patience_sec[0] < 0.5 < patience_sec[1]
    finally:
        answering.dispatcher.close()
        services.close()


def test_whoever_requires_signatures_must_sign(monkeypatch, tmp_path) -> None:
    """API and workers load their settings before anything else: none of them starts."""
    for name, value in {
        "DATABASE_URL": "sqlite:////x.db",
        "BROKER_URL": "redis://h/0",
        "STORE_DIR": "/x",
        "REQUIRE_SIGNATURES": "true",
    }.items():
        monkeypatch.setenv(f"TUNEFARM_{name}", value)
    with pytest.raises(
        InvalidInputError, match=r"(?i)TUNEFARM_SIGNING_KEY is needed.*tunefarm signing create"
    ):
        load_settings()
    monkeypatch.setenv("TUNEFARM_SIGNING_KEY", str(tmp_path / "key.pem"))
    assert load_settings().require_signatures


def test_older_names_of_settings_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"database_url": "sqlite:///x", "broker_url": "redis://x", "store_dir": "/tmp"}
    monkeypatch.setenv("TUNEFARM_MAX_ATTEMPTS", "5")
    monkeypatch.setenv("TUNEFARM_MAX_LOSSES", "50")
    settings = load_settings(**others)
    assert (settings.max_step_faults, settings.max_step_attempts) == (5, 50)
    monkeypatch.setenv("TUNEFARM_MAX_STEP_FAULTS", "7")
    assert load_settings(**others).max_step_faults == 7
    assert load_settings(**others, max_step_faults=9).max_step_faults == 9
