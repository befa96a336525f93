from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from tunefarm_app.access.api_keys import create_api_key, revoke_api_key, verify_api_key
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError, TransientError


class FullDisk(UnitOfWork):
    @contextmanager
    def write(self):
        raise TransientError("no room", code="database-full")
        yield


def test_a_key_is_good_until_it_is_revoked(farm) -> None:
    key, token = create_api_key(farm.services, name="ci", scopes=["read", "write"])
    assert token.startswith(f"tfk_{key.id}_")
    assert verify_api_key(farm.services, token).scopes == ["read", "write"]
    revoke_api_key(farm.services, key.id)
    assert verify_api_key(farm.services, token) is None
    with pytest.raises(NotFoundError):
        revoke_api_key(farm.services, "0" * 16)


def test_only_a_hash_is_kept(farm) -> None:
    key, token = create_api_key(farm.services, name="ci")
    secret = token.rsplit(f"tfk_{key.id}_", 1)[1]
    assert secret not in repr(key)
    with farm.services.uow.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM api_keys").all()
    assert secret not in repr(rows)


def test_other_texts_are_no_keys(farm) -> None:
    key, token = create_api_key(farm.services, name="ci")
    other = create_api_key(farm.services, name="other")[1]
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    mixed = f"tfk_{key.id}_{other.split('_', 2)[2]}"
    for text in ("", "tfk_", wrong, mixed, token + "x", f"tfk_{'0' * 16}_{'A' * 43}", "é" * 64):
        assert verify_api_key(farm.services, text) is None


def test_its_last_use_is_noted(farm) -> None:
    key, token = create_api_key(farm.services, name="ci")
    verify_api_key(farm.services, token)
    with farm.services.uow.read() as repos:
        assert repos.api_keys.find(key.id).last_used_at is not None


@pytest.mark.parametrize("scopes", [["everything"], []])
def test_unknown_scopes(farm, scopes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        create_api_key(farm.services, name="ci", scopes=scopes)
    assert caught.value.code == "unknown-scope"


def test_a_key_is_good_where_its_use_cannot_be_noted(farm) -> None:
    key, token = create_api_key(farm.services, name="ci")
    services = replace(farm.services, uow=FullDisk(farm.services.uow.engine))
    assert verify_api_key(services, token).id == key.id
