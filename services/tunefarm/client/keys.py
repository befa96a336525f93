"""``client.keys``: create, list and revoke API keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from tunefarm.client.http.blocking import Blocking, blocking
from tunefarm.client.http.paging import get_all
from tunefarm.client.http.transport import Resource, segment
from tunefarm.client.results.reading import Answer, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits(Result):
    """What a key may use; None for no limit.

    Attributes:
        bytes: Bytes of models, samples, imported records and running uploads together.
        open_jobs: Jobs that have not ended, and artifacts that are measured again.
        device_minutes: Minutes of search of the jobs of the last 30 days; each job then needs a time budget.
        priority: The highest priority of its jobs.
    """

    bytes: int | None = None
    open_jobs: int | None = None
    device_minutes: float | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(Answer):
    """An API key, without its secret. Times are Unix seconds; None if never used, not revoked or without an end.

    Attributes:
        account: Key whose limits count, and which owns what this one creates; None for itself.
    """

    id: str
    name: str = ""
    scopes: tuple[str, ...] = ()
    created_at: float = 0.0
    last_used_at: float | None = None
    revoked_at: float | None = None
    expires_at: float | None = None
    rotated_at: float | None = None
    account: str | None = None
    limits: KeyLimits = KeyLimits()


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

    async def create(
        self,
        name: str,
        *,
        scopes: Sequence[str],
        valid_sec: float | None = None,
        limits: KeyLimits | None = None,
    ) -> NewApiKey:
        """Create a key. Only this response has its text: the server keeps a hash.

        Args:
            name: Purpose of the key.
            scopes: ``read``, ``write``, ``device``, ``admin`` (all of these, and manage keys).
            valid_sec: Validity in seconds; None for no end.
            limits: What it may use; None for no limits.

        Raises:
            InvalidRequestError: ``unknown-scope``.
        """
        body: dict[str, object] = {"name": name, "scopes": list(scopes)}
        if valid_sec is not None:
            body["valid_sec"] = valid_sec
        if limits is not None:
            body["limits"] = asdict(limits)
        return NewApiKey.read(await self._transport.post("keys", body))

    async def limit(self, key_id: str, limits: KeyLimits) -> ApiKey:
        """Give a key these limits in place of those that it has. They count for keys that it was rotated to, too.

        Raises:
            NotFoundError: If there is no such key.
        """
        return ApiKey.read(await self._transport.patch(f"keys/{segment(key_id)}", {"limits": asdict(limits)}))

    async def rotate(self, key_id: str, *, overlap_sec: float = 7 * 86400.0) -> NewApiKey:
        """Create a key with the name, the rights and the validity of another, which ends after `overlap_sec`.

        Raises:
            NotFoundError: If there is no such key.
            ConflictError: ``key-not-rotatable`` if it is not valid any more, or a device's.
        """
        path = f"keys/{segment(key_id)}/rotate"
        return NewApiKey.read(await self._transport.post(path, {"overlap_sec": overlap_sec}))

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
    limit = blocking(AsyncKeys.limit)
    rotate = blocking(AsyncKeys.rotate)
    revoke = blocking(AsyncKeys.revoke)
    sign_in_link = blocking(AsyncKeys.sign_in_link)
