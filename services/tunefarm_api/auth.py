"""Check the API key of a request, and its scope."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tunefarm_db.values import ApiKey
from tunefarm_tuning.core.errors import TunefarmError

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""The only paths that answer without a key."""

ADMIN = "admin"

# Only for OpenAPI: the gate has checked the key before routing.
_bearer = HTTPBearer(auto_error=False, scheme_name="API key", description="`Authorization: Bearer tfk_…`")


class UnauthenticatedError(TunefarmError):
    """The request has no valid key."""

    default_code = "unauthenticated"


class ForbiddenError(TunefarmError):
    """The request's key may not do this."""

    default_code = "forbidden"


class RequireScope:
    """A route's declaration of the scope that it needs; every route except health has one."""

    def __init__(self, scope: str) -> None:
        self.scope = scope

    async def __call__(
        self,
        request: Request,
        _credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    ) -> None:
        key = key_of(request)
        if self.scope not in key.scopes and ADMIN not in key.scopes:
            raise ForbiddenError(
                f"this API key may not do that: it lacks the scope {self.scope}", scope=self.scope
            )


def key_of(request: Request) -> ApiKey:
    """Return the key that the gate found."""
    key = request.scope.get("tunefarm.api_key")
    if not isinstance(key, ApiKey):  # a path that the gate lets through must not need a scope
        raise UnauthenticatedError("this needs an API key")
    return key


def bearer_token(authorization: str) -> str | None:
    """Return the token of an ``Authorization`` header; None if it is no bearer token."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def needs(scope: str) -> Any:
    """Return the dependency for a route's ``dependencies`` list."""
    return Depends(RequireScope(scope))
