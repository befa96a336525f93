from __future__ import annotations

import time

from tunefarm_app.access.api_keys import create_api_key


def test_a_link_stands_in_for_its_key(client, services) -> None:
    answer = client.post("/v1/sign-in-links")
    assert answer.status_code == 201
    link = answer.json()
    assert link["path"].startswith("/sign-in?link=tfk_")
    assert 60 < link["expires_at"] - time.time() < 3600
    assert "sign-in link" in {key["name"] for key in client.get("/v1/keys").json()["items"]}


def test_a_devices_key_makes_none(stranger, services, problem) -> None:
    key = create_api_key(services, name="device", scopes=["device"])[1]
    problem(stranger.post("/v1/sign-in-links", headers={"Authorization": f"Bearer {key}"}), 403, "forbidden")
