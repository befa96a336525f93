"""How the requests of keys are counted, with and without the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from farm_processes import Broker, free_port
from pydantic import SecretStr

from tunefarm_app.access.rates import KeyRates, StrangerRates, TooManyRequestsError, address_group
from tunefarm_tuning.core.errors import TransientError


def test_a_devices_credential_writes_no_endless_log(farm: Any) -> None:
    rates = KeyRates(farm.services.settings)
    with pytest.raises(
        TooManyRequestsError, match="30 per 1 minute"
    ):  # at the turn of a minute, twice as many
        any(rates.count_life("a") for _ in range(61))
    rates.count_life("b")
    rates.count("a")


def test_each_key_is_counted_by_itself(farm: Any) -> None:
    rates = KeyRates(farm.services.settings.model_copy(update={"key_rate": "2/hour"}))
    for _ in range(2):
        rates.count("a")
    with pytest.raises(TooManyRequestsError) as caught:
        rates.count("a")
    assert 0 < caught.value.retry_after_sec <= 3600
    assert isinstance(caught.value, TransientError)
    rates.count("b")


def test_processes_count_together_over_the_broker(farm: Any, tmp_path: Path) -> None:
    broker = Broker(tmp_path, free_port())
    broker.start()
    try:
        changes = {"key_rate": "3/hour", "broker_url": SecretStr(broker.url)}
        settings = farm.services.settings.model_copy(update=changes)
        first, second = KeyRates(settings), KeyRates(settings)
        first.count("a")
        second.count("a")
        first.count("a")
        with pytest.raises(TooManyRequestsError):
            second.count("a")
    finally:
        broker.kill()
    second.count("a")  # by itself, while the broker is away


def test_no_rate_is_no_limit(farm: Any) -> None:
    rates = KeyRates(farm.services.settings.model_copy(update={"key_rate": ""}))
    for _ in range(1000):
        rates.count("a")


def test_each_address_is_counted_by_itself_and_by_what_it_wants(farm: Any) -> None:
    changes = {"stranger_rate": "2/hour", "attempt_rate": "1/hour"}
    rates = StrangerRates(farm.services.settings.model_copy(update=changes))
    for kind in ("health", "pages"):
        for _ in range(2):
            rates.count_request("192.0.2.1", kind)
    rates.count_attempt("192.0.2.1", "key")
    with pytest.raises(TooManyRequestsError, match="this address may make 2 per 1 hour"):
        rates.count_request("192.0.2.1", "health")
    with pytest.raises(TooManyRequestsError, match="this address may try keys, sign-ins and enrolments"):
        rates.count_attempt("192.0.2.1", "key")
    rates.count_attempt("192.0.2.1", "sign-in")
    rates.count_request("192.0.2.2", "health")
    rates.count_attempt("192.0.2.2", "key")


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("", ""),
        ("a socket", ""),
    ],
)
def test_what_an_address_is_counted_as(address: str, group: str) -> None:
    assert address_group(address) == group
