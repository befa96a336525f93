"""``/v1/keys``: create, list and revoke API keys. ``/v1/sign-in-links``: make a link that signs a browser in."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request

from tunefarm_api.auth import key_of
from tunefarm_api.dependencies import KeyId, ServicesDep, operation
from tunefarm_api.paths import SIGN_IN
from tunefarm_api.schemas.api_key import (
    ApiKey,
    ApiKeyChange,
    ApiKeyCreate,
    ApiKeyRotation,
    NewApiKey,
    SignInLink,
)
from tunefarm_api.schemas.base import Page
from tunefarm_app.access.api_keys import (
    create_api_key,
    limit_api_key,
    list_api_keys,
    revoke_api_key,
    rotate_api_key,
)
from tunefarm_app.access.browser_sessions import LINK_VALID_SEC, make_link
from tunefarm_app.access.quotas import NO_LIMITS, KeyLimits

router = APIRouter(prefix="/v1", tags=["keys"])


@router.post("/keys", status_code=201, **operation("admin", "Create an API key"))
def create_key(body: ApiKeyCreate, request: Request, services: ServicesDep) -> NewApiKey:
    """Only this response has the key: the server keeps a hash."""
    key, text = create_api_key(
        services,
        name=body.name,
        scopes=body.scopes,
        valid_sec=body.valid_sec,
        limits=NO_LIMITS if body.limits is None else KeyLimits(**body.limits.model_dump()),
        by_key_id=key_of(request).id,
    )
    return NewApiKey(**ApiKey.model_validate(key).model_dump(), key=text)


@router.get("/keys", **operation("admin", "List API keys"))
def list_keys(services: ServicesDep) -> Page[ApiKey]:
    """Oldest first, including revoked ones. Never split into parts."""
    return Page[ApiKey](
        items=[ApiKey.model_validate(key) for key in list_api_keys(services)], next_cursor=None
    )


@router.patch("/keys/{key_id}", **operation("admin", "Change an API key's limits", 404))
def change_key(key_id: KeyId, body: ApiKeyChange, services: ServicesDep) -> ApiKey:
    """They apply at once to new uploads and jobs, also to keys that replaced this one by rotation. Running uploads and jobs continue."""
    limits = None if body.limits is None else KeyLimits(**body.limits.model_dump())
    return ApiKey.model_validate(limit_api_key(services, key_id, limits))


@router.post("/keys/{key_id}/rotate", status_code=201, **operation("admin", "Rotate an API key", 404, 409))
def rotate_key(key_id: KeyId, body: ApiKeyRotation, request: Request, services: ServicesDep) -> NewApiKey:
    """Creates a key with the same name, rights and validity. The old one ends after `overlap_sec`."""
    key, text = rotate_api_key(services, key_id, overlap_sec=body.overlap_sec, by_key_id=key_of(request).id)
    return NewApiKey(**ApiKey.model_validate(key).model_dump(), key=text)


@router.post("/keys/{key_id}/revoke", **operation("admin", "Revoke an API key", 404, 409))
def revoke_key(key_id: KeyId, request: Request, services: ServicesDep) -> ApiKey:
    """Revoking a key again has no effect. The last key with the scope `admin` cannot be revoked."""
    return ApiKey.model_validate(revoke_api_key(services, key_id, by_key_id=key_of(request).id))


@router.post("/sign-in-links", status_code=201, **operation("read", "Create a sign-in link"))
def create_link(request: Request, services: ServicesDep) -> SignInLink:
    """The link signs one browser in to the dashboard, once, with the rights of the request's key."""
    text = make_link(services, key_of(request))
    return SignInLink(path=f"{SIGN_IN}?link={text}", expires_at=time.time() + LINK_VALID_SEC)
