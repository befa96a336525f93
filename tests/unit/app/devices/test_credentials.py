"""Credentials of devices: they end, and are replaced with an overlap."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from tunefarm_app.access.api_keys import create_api_key, revoke_api_key, verify_api_key, why_not_valid
from tunefarm_app.devices.commands import remove_device
from tunefarm_app.devices.credentials import credentials_of, is_due, renew_credential
from tunefarm_app.devices.enrolment import create_enrolment_token, enrol_devices
from tunefarm_db.values import ApiKey
from tunefarm_tuning.core.errors import ConflictError

DAY = 86400.0


@pytest.fixture
def services(farm: Any) -> Any:
    return farm.services


def enrol(services: Any, *, guest: bool = False) -> tuple[ApiKey, str]:
    token, _ = create_enrolment_token(services, device_key="pool", device_name="box", guest=guest)
    (enrolled,) = enrol_devices(services, token, names=["box"], device_key="pool")
    return enrolled


def age(services: Any, key: ApiKey, days: float) -> ApiKey:
    """Let the key be older by some days."""
    with services.uow.engine.begin() as connection:
        for column in ("created_at", "expires_at", "rotated_at", "unrotated_end"):
            connection.execute(
                text(f"UPDATE api_keys SET {column} = {column} - :sec WHERE id = :id"),
                {"sec": days * DAY, "id": key.id},
            )
    with services.uow.read() as repos:
        aged = repos.api_keys.find(key.id)
    assert aged is not None
    return aged


def now_of(services: Any) -> float:
    with services.uow.read() as repos:
        return float(repos.now())


def test_a_credential_ends(services: Any) -> None:
    key, key_text = enrol(services)
    assert key.expires_at is not None
    assert key.expires_at - key.created_at == pytest.approx(30 * DAY, abs=5)
    assert verify_api_key(services, key_text) is not None
    age(services, key, 30.1)
    assert verify_api_key(services, key_text) is None


def test_it_is_replaced_after_half_of_its_time_and_ends_a_day_after_its_successor_was_used(
    services: Any,
) -> None:
    key, key_text = enrol(services)
    assert not is_due(age(services, key, 14.9), now_of(services))
    with pytest.raises(ConflictError) as caught:
        renew_credential(services, key)
    assert caught.value.code == "credential-not-due"
    assert is_due(age(services, key, 0.2), now_of(services))
    successor, successor_text = renew_credential(services, key)
    assert (successor.device_name, successor.device_key, successor.scopes) == ("box", "pool", key.scopes)
    assert successor.owner == key.owner
    for valid in (key_text, successor_text):
        assert verify_api_key(services, valid) is not None
    age(services, key, 1.01)
    assert verify_api_key(services, key_text) is None
    assert verify_api_key(services, successor_text) is not None


def test_the_former_one_never_lasts_beyond_its_own_end(services: Any) -> None:
    key, key_text = enrol(services)
    age(services, key, 29.99)
    renew_credential(services, key)
    age(services, key, 0.02)
    assert verify_api_key(services, key_text) is None


def test_an_agent_that_lost_the_successor_gets_another_and_the_lost_one_ends(services: Any) -> None:
    key, _ = enrol(services)
    age(services, key, 20)
    _, lost_text = renew_credential(services, key)
    with pytest.raises(ConflictError):
        renew_credential(services, key)  # nobody fills the table of keys
    age(services, key, 0.01)
    _, next_text = renew_credential(services, key)
    assert verify_api_key(services, lost_text) is None
    assert verify_api_key(services, next_text) is not None


def test_a_device_that_lost_the_successor_and_was_off_for_a_week_goes_on(services: Any) -> None:
    key, key_text = enrol(services)
    age(services, key, 20)
    renew_credential(services, key)
    aged = age(services, key, 7)
    assert verify_api_key(services, key_text) is not None
    assert is_due(aged, now_of(services))
    renew_credential(services, key)


def test_a_former_credential_does_not_end_a_successor_that_is_in_use(services: Any) -> None:
    key, _ = enrol(services)
    age(services, key, 20)
    _, successor_text = renew_credential(services, key)
    assert verify_api_key(services, successor_text) is not None
    age(services, key, 0.1)
    with pytest.raises(ConflictError, match="in use") as caught:
        renew_credential(services, key)
    assert caught.value.code == "credential-not-due"
    assert verify_api_key(services, successor_text) is not None


def test_a_token_for_the_same_device_stays(services: Any) -> None:
    key, _ = enrol(services)
    age(services, key, 20)
    _, token_text = create_enrolment_token(services, device_key="pool", device_name="box")
    renew_credential(services, key)
    assert verify_api_key(services, token_text) is not None


def test_a_guest_stays_a_guest(services: Any) -> None:
    key, _ = enrol(services, guest=True)
    age(services, key, 20)
    successor, _ = renew_credential(services, key)
    assert successor.scopes == key.scopes
    assert len(successor.scopes) == 2


def test_one_without_an_end_is_replaced_at_once(services: Any) -> None:
    key, key_text = enrol(services)
    with services.uow.engine.begin() as connection:
        connection.execute(text("UPDATE api_keys SET expires_at = NULL WHERE id = :id"), {"id": key.id})
    _, successor_text = renew_credential(services, key)
    assert verify_api_key(services, successor_text) is not None
    age(services, key, 1.01)
    assert verify_api_key(services, key_text) is None


def test_a_revoked_one_and_a_persons_key_are_not_replaced(services: Any) -> None:
    key, _ = enrol(services)
    age(services, key, 20)
    revoke_api_key(services, key.id)
    person, _ = create_api_key(services, name="p", scopes=["device"], valid_sec=1.0)
    for refused in (key, person):
        with pytest.raises(ConflictError):
            renew_credential(services, refused)


def test_the_newest_valid_one_is_shown(services: Any) -> None:
    key, _ = enrol(services)
    age(services, key, 20)
    successor, _ = renew_credential(services, key)
    with services.uow.read() as repos:
        shown = credentials_of(repos, ["box", "other"])
    assert list(shown) == ["box"]
    assert (shown["box"].key_id, shown["box"].expires_at) == (successor.id, successor.expires_at)
    revoke_api_key(services, successor.id)
    revoke_api_key(services, key.id)
    with services.uow.read() as repos:
        assert credentials_of(repos, ["box"]) == {}


def test_who_has_an_ended_credential_is_told_why_and_what_to_do(services: Any, farm: Any) -> None:
    key, first = enrol(services)
    _, second = enrol(services)
    again = "To add the device again: `tunefarm device token --name box` prints a token at the farm, `tunefarm device join --token TOKEN` takes it here"
    assert why_not_valid(services, first) == (
        f"device box was removed from this farm, so this credential ended. {again}"
    ), "enrolled, and never registered"
    device = farm.add_device("box")
    assert (
        why_not_valid(services, first)
        == f"device box was enrolled again since, so this credential ended. {again}"
    )
    remove_device(services, device.id)
    for ended in (first, second):
        assert "device box was removed from this farm" in why_not_valid(services, ended)
    key, third = enrol(services)
    age(services, key, 30.1)
    assert why_not_valid(services, third) == f"the credential of device box has expired. {again}"
    wrong = third[:-1] + ("A" if third[-1] != "A" else "B")
    assert why_not_valid(services, wrong) == why_not_valid(services, "x") == "this API key is not valid"
    person, text_of_person = create_api_key(services, name="ci")
    create_api_key(services, name="another")
    revoke_api_key(services, person.id)
    assert why_not_valid(services, text_of_person) == "this API key was revoked"
