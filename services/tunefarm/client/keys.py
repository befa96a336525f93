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
    """A key of the API, without its secret. Times are Unix seconds, None where it was never used or is not revoked."""

    id: str
    name: str = ""
    scopes: tuple[str, ...] = ()
    created_at: float = 0.0
    last_used_at: float | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey(ApiKey):
    """A key that was just made. `key` is its text: the server keeps a hash alone."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink(Result):
    """A link that signs one browser in to the dashboard, once; good until `expires_at`, Unix seconds."""

    url: str = field(repr=False)
    expires_at: float = 0.0


class AsyncKeys(Resource):
    """Who may use the server, and for what. Needs a key with the scope ``admin``."""

    async def create(self, name: str, *, scopes: Sequence[str]) -> NewApiKey:
        """Make a key. Its text is in the answer this once: the server keeps a hash.

        Args:
            name: What it is for.
            scopes: ``read``, ``write``, ``device``, ``admin`` (all of these, and keys).

        Raises:
            InvalidRequestError: ``unknown-scope``.
        """
        return NewApiKey.read(await self._transport.post("keys", {"name": name, "scopes": list(scopes)}))

    async def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, the revoked ones too, oldest first."""
        return await get_all(self._transport, "keys", {}, ApiKey.read)

    async def revoke(self, key_id: str) -> ApiKey:
        """Make a key worthless from now on.

        Raises:
            NotFoundError: If there is no such key.
            ConflictError: ``last-admin-key`` if nobody could make keys any more.
        """
        return ApiKey.read(await self._transport.post(f"keys/{segment(key_id)}/revoke", repeatable=True))

    async def sign_in_link(self) -> SignInLink:
        """Make a link that lets a browser do what this client's key may do. It needs the scope ``read`` only."""
        answer = await self._transport.post("sign-in-links")
        if isinstance(answer, dict) and isinstance(answer.get("path"), str):
            answer = {**answer, "url": self._transport.url + answer["path"]}
        return SignInLink.read(answer)


class Keys(Blocking[AsyncKeys]):
    """Who may use the server, and for what. Needs a key with the scope ``admin``."""

    create = blocking(AsyncKeys.create)
    list = blocking(AsyncKeys.list)
    revoke = blocking(AsyncKeys.revoke)
    sign_in_link = blocking(AsyncKeys.sign_in_link)
