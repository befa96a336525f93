"""Every route but health needs a key, and each names the scope that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute, Route
from starlette.testclient import TestClient

from tunefarm_api.app import create_app
from tunefarm_api.auth import PUBLIC_PATHS
from tunefarm_api.gate import LOOPBACK_HOSTS
from tunefarm_api.paths import is_page
from tunefarm_app.access.api_keys import create_api_key, revoke_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings


def every_route(app: FastAPI) -> list[tuple[str, str]]:
    """Return (method, path) of all routes of the API. Pages have sessions and tests of their own."""

    def walk(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
        for route in routes:
            if isinstance(route, Route):
                yield from ((method, route.path) for method in route.methods or ())
            elif hasattr(route, "effective_route_contexts"):
                for context in route.effective_route_contexts():
                    yield from ((method, context.path) for method in context.methods)
            else:
                raise AssertionError(f"a route of a kind this test does not know: {route!r}")

    return sorted((method, path) for method, path in walk(list(app.routes)) if not is_page(path))


def concrete(path: str) -> str:
    return path.replace("{", "").replace("}", "")


def test_the_walk_finds_the_routes(app: FastAPI) -> None:
    routes = every_route(app)
    assert ("POST", "/v1/models") in routes
    assert ("GET", "/v1/jobs/{job_id}/artifact") in routes
    assert ("GET", "/v1/openapi.json") in routes
    documented = {(method.upper(), path) for path, item in app.openapi()["paths"].items() for method in item}
    assert documented <= set(routes)
    assert len(documented) >= 23


def test_only_health_answers_without_a_key(app: FastAPI, stranger: TestClient, problem: Any) -> None:
    for method, path in every_route(app):
        answer = stranger.request(method, concrete(path))
        if path in PUBLIC_PATHS:
            assert answer.status_code == 200, path
        elif method == "HEAD":
            assert answer.status_code == 401
        else:
            problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_what_is_not_there_is_closed_as_well(stranger: TestClient, problem: Any) -> None:
    for path in (
        "/docs",
        "/redoc",
        "/openapi.json",
        "/v1",
        "/v1/nothing",
        "/healthz/",
        "/healthz/../v1/jobs",
    ):
        problem(stranger.get(path), 401, "unauthenticated")


def test_every_route_needs_a_scope(
    app: FastAPI, services: Services, stranger: TestClient, problem: Any
) -> None:
    """A key whose scopes fit nothing opens nothing; the right one gets past the check."""
    with services.uow.write() as repos:
        import hashlib

        secret = "s" * 43
        repos.api_keys.add(
            key_id="0" * 16, name="none", secret_sha256=hashlib.sha256(secret.encode()).hexdigest(), scopes=[]
        )
    useless = {"Authorization": f"Bearer tfk_{'0' * 16}_{secret}"}
    keys = {
        scope: {"Authorization": f"Bearer {create_api_key(services, name=scope, scopes=[scope])[1]}"}
        for scope in ("read", "write", "device", "admin")
    }
    reports = (
        "/v1/devices",
        "/v1/devices/credential",
        "/v1/devices/{device_id}/heartbeat",
        "/v1/devices/{device_id}/certificate",
    )
    for method, path in every_route(app):
        if path in PUBLIC_PATHS or method == "HEAD":
            continue
        document = problem(stranger.request(method, concrete(path), headers=useless), 403, "forbidden")
        needed = document["scope"]
        assert needed == (
            "read"
            if path == "/v1/signing-keys"
            else "admin"
            if "keys" in path or "audit" in path or path.endswith("/records/purge")
            else "write"
            if "webhooks" in path
            else "read"
            if method == "GET" or path.endswith("/sign-in-links")
            else "device"
            if path in reports
            else "enrol"
            if path.endswith("/enrol")
            else "admin"
            if "devices" in path
            else "write"
        )
        for scope, headers in keys.items():
            status = stranger.request(method, concrete(path), headers=headers).status_code
            assert (status == 403) is (scope not in (needed, "admin")), (method, path, scope)


def test_keys_that_are_not_ours(services: Services, stranger: TestClient, problem: Any) -> None:
    key, token = create_api_key(services, name="x")
    _, other = create_api_key(services, name="y")
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {token}",
        token,
        f"Bearer {token[:-1]}",
        f"Bearer {token}x",
        f"Bearer {token[:20]}{other[20:]}",
        "Bearer tfk_",
        "Bearer " + "a" * 5000,
    ]
    for value in wrong:
        problem(stranger.get("/v1/jobs", headers={"Authorization": value}), 401, "unauthenticated")
    good = {"Authorization": f"bearer {token}"}
    assert stranger.get("/v1/jobs", headers=good).status_code == 200
    revoke_api_key(services, key.id)
    problem(stranger.get("/v1/jobs", headers=good), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8000", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8000", True),
        ("[::1]", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("127.0.0.1.evil.example", False),
        ("localhost:8000@evil.example", False),
        ("", False),
    ],
)
def test_a_server_on_loopback_knows_its_names(
    settings: Settings, host: str, allowed: bool, problem: Any
) -> None:
    """Against DNS re-binding: a page from evil.example that resolves to 127.0.0.1 gets nothing."""
    app = create_app(settings, allowed_hosts=LOOPBACK_HOSTS, reconcile=False)
    with TestClient(app) as client:
        answer = client.get("/healthz", headers={"Host": host})
    if allowed:
        assert answer.status_code == 200
    else:
        problem(answer, 421, "host-not-allowed")


def test_no_cross_origin_headers(client: TestClient) -> None:
    answer = client.get("/v1/jobs", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
