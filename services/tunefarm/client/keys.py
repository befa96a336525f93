"""``client.keys``: create, list and revoke API keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tunefarm.client.http.blocking import Blocking, blocking
from tunefarm.client.http.paging import get_all
from tunefarm.client.http.transport import Resource, segment
from tunefarm.client.results.reading import Answer, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(Answer):
    """An API key, without its secret. Times are Unix seconds; None if never used or not revoked."""

    id: str
    name: str = ""
    scopes: tuple[str, ...] = ()
    created_at: float = 0.0
    last_used_at: float | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey(ApiKey):
    """A new API key. `key` is its text, shown only now."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink(Result):
    """A link that signs one browser in to the dashboard, once, until `expires_at`, Unix seconds."""

    url: str = field(repr=False)
    expires_at: float = 0.0


class AsyncKeys(Resource):
    """The server's API keys. Needs a key with the scope ``admin``."""

    async def create(self, name: str, *, scopes: Sequence[str]) -> NewApiKey:
        """Create a key. Only this response has its text: the server keeps a hash.

        Args:
            name: Purpose of the key.
            scopes: ``read``, ``write``, ``device``, ``admin`` (all of these, and manage keys).

        Raises:
            InvalidRequestError: ``unknown-scope``.
        """
        return NewApiKey.read(await self._transport.post("keys", {"name": name, "scopes": list(scopes)}))

    async def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, including revoked ones, oldest first."""
        return await get_all(self._transport, "keys", {}, ApiKey.read)

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key.

        Raises:
            NotFoundError: If there is no such key.
            ConflictError: ``last-admin-key`` if nobody could create keys without it.
        """
        return ApiKey.read(await self._transport.post(f"keys/{segment(key_id)}/revoke", repeatable=True))

    async def sign_in_link(self) -> SignInLink:
        """Create a link that signs a browser in with the rights of this client's key. Needs only the scope ``read``."""
        answer = await self._transport.post("sign-in-links")
        if isinstance(answer, dict) and isinstance(answer.get("path"), str):
            answer = {**answer, "url": self._transport.url + answer["path"]}
        return SignInLink.read(answer)


class Keys(Blocking[AsyncKeys]):
    """The server's API keys. Needs a key with the scope ``admin``."""

    create = blocking(AsyncKeys.create)
    list = blocking(AsyncKeys.list)
    revoke = blocking(AsyncKeys.revoke)
    sign_in_link = blocking(AsyncKeys.sign_in_link)
