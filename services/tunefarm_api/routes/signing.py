"""``/v1/signing-keys``: the public keys that artifacts of this farm are verified with."""

from __future__ import annotations

from fastapi import APIRouter

from tunefarm_api.dependencies import ServicesDep, operation
from tunefarm_api.schemas.base import Page
from tunefarm_api.schemas.signing import SigningKey
from tunefarm_app.identity.signing import farm_keys

router = APIRouter(prefix="/v1", tags=["signing"])


@router.get("/signing-keys", **operation("read", "List the farm's signing keys"))
def list_signing_keys(services: ServicesDep) -> Page[SigningKey]:
    """The current key first, then former ones. Empty if the farm does not sign. Never split into parts.

    An attacker who controls this server's answers can name other keys: keep the keys from the first request, or get them in another way.
    """
    keys = farm_keys(services.settings.signing_key)
    items = [
        SigningKey(id=key.id, public_key=key.pem, is_current=number == 0) for number, key in enumerate(keys)
    ]
    return Page[SigningKey](items=items, next_cursor=None)
