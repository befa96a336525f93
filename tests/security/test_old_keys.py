"""A key that leaked long ago, one that never stops, and a stranger who asks whether the farm is ready."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tunefarm_api.app import create_app
from tunefarm_app.access.api_keys import create_api_key, revoke_api_key, rotate_api_key
from tunefarm_app.access.browser_sessions import start_session
from tunefarm_app.runtime.composition import Services, compose
from tunefarm_app.settings import Settings
from tunefarm_db import schema
from tunefarm_tuning.core.errors import ConflictError


def farm_of(folder: Any, **changes: Any) -> tuple[Settings, Services]:
    settings = Settings.model_validate(
        {
            "database_url": f"sqlite:///{folder / 'farm.db'}",
            "broker_url": "redis://127.0.0.1:1/0",
            "store_dir": folder / "store",
            **changes,
        }
    )
    schema.upgrade(settings.database_url.get_secret_value())
    return settings, compose(settings)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_a_key_ends(tmp_path: Any) -> None:
    settings, services = farm_of(tmp_path)
    _, admin = create_api_key(services, name="admin")
    with TestClient(create_app(settings, reconcile=False), headers=bearer(admin)) as client:
        answer = client.post("/v1/keys", json={"name": "ci", "scopes": ["read"], "valid_sec": 90 * 86400})
        assert answer.json()["expires_at"] - answer.json()["created_at"] == 90 * 86400
        _, ended = create_api_key(services, name="old", scopes=["read"], valid_sec=-1.0)
        assert client.get("/v1/jobs", headers=bearer(ended)).status_code == 401
    services.close()


def test_a_rotated_key_ends_after_the_overlap(tmp_path: Any) -> None:
    settings, services = farm_of(tmp_path)
    key, admin = create_api_key(services, name="admin")
    with TestClient(create_app(settings, reconcile=False), headers=bearer(admin)) as client:
        first = client.post(f"/v1/keys/{key.id}/rotate", json={"overlap_sec": 3600}).json()
        assert first["scopes"] == ["admin"]
        assert client.get("/v1/jobs").status_code == 200, "both are valid meanwhile"
        assert client.get("/v1/jobs", headers=bearer(first["key"])).status_code == 200
        second = client.post(
            f"/v1/keys/{first['id']}/rotate", json={"overlap_sec": 0}, headers=bearer(first["key"])
        ).json()
        assert client.get("/v1/jobs", headers=bearer(first["key"])).status_code == 401
        assert client.get("/v1/jobs", headers=bearer(second["key"])).status_code == 200
        ended = client.post(f"/v1/keys/{first['id']}/rotate", json={}, headers=bearer(second["key"]))
        assert (ended.status_code, ended.json()["code"]) == (409, "key-not-rotatable")
    services.close()


def test_a_second_rotation_has_an_overlap_of_its_own(tmp_path: Any) -> None:
    """The first one had cut the validity of the key, and so the second overlap, and the validity of every successor."""
    _, services = farm_of(tmp_path)
    key, _ = create_api_key(services, name="ci")
    limited, _ = create_api_key(services, name="limited", valid_sec=30 * 86400.0)
    rotate_api_key(services, key.id, overlap_sec=3600.0)
    second, _ = rotate_api_key(services, key.id, overlap_sec=7 * 86400.0)
    assert second.expires_at is None
    with services.uow.read() as repos:
        rotated = repos.api_keys.find(key.id)
        assert rotated is not None
        assert rotated.expires_at is not None
        assert rotated.expires_at == pytest.approx(repos.now() + 7 * 86400.0, abs=300.0)
    first_end = limited.expires_at
    for overlap_sec in (60.0, 365 * 86400.0):
        successor, _ = rotate_api_key(services, limited.id, overlap_sec=overlap_sec)
        assert successor.expires_at is not None
        assert successor.expires_at - successor.created_at == pytest.approx(30 * 86400.0, abs=1.0)
    with services.uow.read() as repos:
        rotated = repos.api_keys.find(limited.id)
        assert rotated is not None
        assert rotated.expires_at == first_end, "no overlap goes beyond the key's own end"
    services.close()


def test_an_ended_key_is_no_administrator(tmp_path: Any) -> None:
    """With it, the last key that can create others could be revoked."""
    settings, services = farm_of(tmp_path)
    key, admin = create_api_key(services, name="admin")
    create_api_key(services, name="old", valid_sec=-1.0)
    with TestClient(create_app(settings, reconcile=False), headers=bearer(admin)) as client:
        refused = client.post(f"/v1/keys/{key.id}/revoke")
        assert (refused.status_code, refused.json()["code"]) == (409, "last-admin-key")
    services.close()


@pytest.mark.parametrize(
    ("validity_sec", "other_sec", "is_revoked"),
    [
        (None, None, True),
        (None, 90 * 86400.0, False),
        (30 * 86400.0, None, True),
        (30 * 86400.0, 90 * 86400.0, True),
        (90 * 86400.0, 30 * 86400.0, False),
        (60.0, 3600.0, False),
    ],
)
def test_the_last_administrator_is_not_one_that_ends_sooner(
    tmp_path: Any, validity_sec: float | None, other_sec: float | None, *, is_revoked: bool
) -> None:
    _, services = farm_of(tmp_path)
    key, _ = create_api_key(services, name="admin", valid_sec=validity_sec)
    create_api_key(services, name="other", valid_sec=other_sec)
    if is_revoked:
        assert revoke_api_key(services, key.id).revoked_at is not None
    else:
        with pytest.raises(ConflictError) as caught:
            revoke_api_key(services, key.id)
        assert caught.value.code == "last-admin-key"
    services.close()


def test_a_key_whose_successor_is_revoked_must_not_be_the_last(tmp_path: Any) -> None:
    _, services = farm_of(tmp_path)
    key, _ = create_api_key(services, name="admin")
    successor, _ = rotate_api_key(services, key.id)
    with pytest.raises(ConflictError):
        revoke_api_key(services, successor.id)
    assert revoke_api_key(services, key.id).revoked_at is not None
    services.close()


def test_a_key_that_never_stops_leaves_the_farm_to_others(tmp_path: Any) -> None:
    settings, services = farm_of(tmp_path, key_rate="5/hour")
    _, greedy = create_api_key(services, name="greedy")
    _, modest = create_api_key(services, name="modest")
    with TestClient(create_app(settings, reconcile=False)) as client:
        statuses = [client.get("/v1/jobs", headers=bearer(greedy)).status_code for _ in range(8)]
        assert statuses == [200] * 5 + [429] * 3
        refused = client.get("/v1/jobs", headers=bearer(greedy))
        assert refused.json()["code"] == "rate-limited"
        assert 0 < int(refused.headers["Retry-After"]) <= 3600
        assert client.get("/v1/jobs", headers=bearer(modest)).status_code == 200
    services.close()


def test_a_browser_that_never_stops_is_counted(tmp_path: Any) -> None:
    """A session stands in for its key: both are counted together."""
    settings, services = farm_of(tmp_path, key_rate="5/hour")
    _, greedy = create_api_key(services, name="greedy")
    cookie = {"Cookie": f"tunefarm_session={start_session(services, greedy)}"}
    with TestClient(create_app(settings, reconcile=False)) as client:
        assert client.get("/v1/jobs", headers=bearer(greedy)).status_code == 200
        assert [client.get("/jobs", headers=cookie).status_code for _ in range(5)] == [200] * 4 + [429]
        assert client.get("/static/style.css").status_code != 429
    services.close()


def test_asking_whether_the_farm_is_ready_costs_nothing(tmp_path: Any) -> None:
    settings, services = farm_of(tmp_path)
    with TestClient(create_app(settings, reconcile=False)) as client:
        with services.uow.write():  # somebody writes: on SQLite, nobody else can
            assert all(client.get("/readyz").status_code == 200 for _ in range(200))
        assert not list(settings.store_dir.glob("tmp/*"))
    services.close()
