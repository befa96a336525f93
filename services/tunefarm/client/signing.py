"""``client.signing``: the public keys that the farm's artifacts are verified with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunefarm.client.errors import ConflictError
from tunefarm.client.http.blocking import Blocking, blocking
from tunefarm.client.http.paging import get_all
from tunefarm.client.http.transport import Resource
from tunefarm.client.results.reading import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey(Answer):
    """A public key of the farm.

    Attributes:
        id: What envelopes name it by.
        public_key: The Ed25519 key, as PEM.
        is_current: Whether workers sign with it now; a former key verifies what it signed.
    """

    id: str
    public_key: str = ""
    is_current: bool = False


class AsyncSigning(Resource):
    """The keys that the server's farm signs its results with."""

    async def list(self) -> tuple[SigningKey, ...]:
        """Return the farm's public keys, the current one first; none if it does not sign."""
        return await get_all(self._transport, "signing-keys", {}, SigningKey.read)

    async def save(self, file: Path | str) -> Path:
        """Write the farm's public keys to a file, for `tunefarm.load` and `tunefarm verify`, and return its path.

        Args:
            file: File to write; an existing file is replaced.

        Raises:
            ConflictError: ``not-signing`` if the farm has none.
        """
        keys, path = await self.list(), Path(file)
        if not keys:
            raise ConflictError(
                "the farm does not sign its results: it has no signing key (`tunefarm signing create`)",
                code="not-signing",
            )
        path.write_text(
            "".join(f"tunefarm signing key {key.id}\n{key.public_key}\n" for key in keys), "utf-8"
        )
        return path


class Signing(Blocking[AsyncSigning]):
    """The keys that the server's farm signs its results with."""

    list = blocking(AsyncSigning.list)
    save = blocking(AsyncSigning.save)
