"""API keys: hashes and scopes, by public id."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, case, delete, func, or_, select, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import ApiKeyRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import ApiKey, Json
from tunefarm_tuning.core.errors import NotFoundError
from tunefarm_tuning.core.untrusted_text import clean

_KEYS = table_of(ApiKeyRow)


class ApiKeys(Repository):
    """API keys: their hashes, names and scopes."""

    def add(
        self,
        *,
        key_id: str,
        name: str,
        secret_sha256: str,
        scopes: Sequence[str],
        valid_sec: float | None = None,
        device_name: str | None = None,
        device_key: str | None = None,
        account: str | None = None,
        limits: Json | None = None,
    ) -> ApiKey:
        """Store a key; see `ApiKey` for what binds it. Raises `ConflictError` if the id is taken."""
        values = {
            "id": key_id,
            "name": name,
            "secret_sha256": secret_sha256,
            "scopes": list(scopes),
            "expires_at": None if valid_sec is None else db_now() + valid_sec,
            "device_name": device_name,
            "device_key": device_key,
            "account": account,
            "limits": limits or {},
        }
        return self._add(ApiKey, _KEYS, values)

    def find(self, key_id: str, *, lock: bool = False) -> ApiKey | None:
        """Return the key, revoked or not; with `lock`, its row is held until the end of the unit of work."""
        query = select(_KEYS).where(ApiKeyRow.id == key_id)
        return self._first(ApiKey, query.with_for_update() if lock else query)

    def get(self, key_id: str, *, lock: bool = False) -> ApiKey:
        """Return the key as `find` does.

        Raises:
            NotFoundError: ``key-not-found``.
        """
        key = self.find(key_id, lock=lock)
        if key is None:
            raise NotFoundError(
                f"there is no such key: {clean(key_id, 60)}", code="key-not-found", key_id=key_id
            )
        return key

    def limit(self, key_id: str, limits: Json) -> None:
        """Give the key these limits in place of others."""
        self._run(update(_KEYS).where(ApiKeyRow.id == key_id).values(limits=limits))

    def list(self, *, lock: bool = False) -> tuple[ApiKey, ...]:
        """Return all keys, oldest first.

        Args:
            lock: Hold their rows until the end of the unit of work (SQLite holds the whole database anyway).
        """
        query = select(_KEYS).order_by(ApiKeyRow.created_at, ApiKeyRow.id)
        return self._all(ApiKey, query.with_for_update() if lock else query)

    def head(self) -> tuple[object, ...]:
        """Return a tuple that changes whenever the list of keys changes."""
        newest = (
            func.max(column)
            for column in (ApiKeyRow.created_at, ApiKeyRow.revoked_at, ApiKeyRow.last_used_at)
        )
        return tuple(self._run(select(func.count(), *newest)).one())

    def touch(self, key_id: str) -> None:
        """Note that the key was used now."""
        self._run(update(_KEYS).where(ApiKeyRow.id == key_id).values(last_used_at=db_now()))

    def revoke(self, key_id: str) -> ApiKey:
        """Revoke the key from now on; revoking it again keeps the first time.

        Raises:
            NotFoundError: If there is no such key.
        """
        self._run(
            update(_KEYS)
            .where(ApiKeyRow.id == key_id, ApiKeyRow.revoked_at.is_(None))
            .values(revoked_at=db_now())
        )
        return self.get(key_id)

    def rotate(self, key_id: str, in_sec: float, *, own_end: float | None) -> None:
        """Let the key end in so many seconds, or at its own end if that is sooner."""
        end = db_now() + in_sec
        sooner = end if own_end is None else case((end < own_end, end), else_=own_end)
        changes = {"expires_at": sooner, "rotated_at": db_now(), "unrotated_end": own_end}
        self._run(update(_KEYS).where(ApiKeyRow.id == key_id).values(changes))

    def end_former(self, key: ApiKey, in_sec: float) -> None:
        """Let the keys that were replaced, of the key's device, end in so many seconds, unless they end sooner."""
        end = db_now() + in_sec
        statement = update(_KEYS).where(
            ApiKeyRow.device_name == key.device_name,
            ApiKeyRow.id != key.id,
            ApiKeyRow.revoked_at.is_(None),
            ApiKeyRow.rotated_at.is_not(None),
            ApiKeyRow.expires_at > end,
        )
        self._run(statement.values(expires_at=end))

    def use_up(self, key_id: str) -> bool:
        """Revoke a key that is valid for one use; return False if it was used before or has expired."""
        statement = update(_KEYS).where(ApiKeyRow.id == key_id, *_valid())
        return self._run(statement.values(revoked_at=db_now(), last_used_at=db_now())).rowcount == 1

    def of_devices(self, names: Sequence[str]) -> tuple[ApiKey, ...]:
        """Return the valid keys that are bound to these devices, oldest first."""
        query = select(_KEYS).where(ApiKeyRow.device_name.in_([*names]), *_valid())
        return self._all(ApiKey, query.order_by(ApiKeyRow.created_at, ApiKeyRow.rotated_at.is_(None)))

    def valid_named(self, names: Sequence[str]) -> tuple[ApiKey, ...]:
        """Return the valid keys of these names."""
        return self._all(ApiKey, select(_KEYS).where(ApiKeyRow.name.in_([*names]), *_valid()))

    def bind(self, key_id: str, device_name: str) -> None:
        """Bind the key to this device from now on."""
        self._run(update(_KEYS).where(ApiKeyRow.id == key_id).values(device_name=device_name))

    def revoke_of_device(self, device_name: str, *, but: str = "") -> int:
        """Revoke every key that is bound to this device, but for the one with the id `but`; return how many."""
        statement = update(_KEYS).where(
            ApiKeyRow.device_name == device_name, ApiKeyRow.revoked_at.is_(None), ApiKeyRow.id != but
        )
        return int(self._run(statement.values(revoked_at=db_now())).rowcount)

    def forget_expired(self, names: Sequence[str], after_sec: float) -> int:
        """Delete the keys of these names that expired `after_sec` ago or earlier; return how many."""
        statement = delete(_KEYS).where(
            ApiKeyRow.name.in_(list(names)), ApiKeyRow.expires_at < db_now() - after_sec
        )
        return int(self._run(statement).rowcount)


def _valid() -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the conditions of a key that is valid now."""
    has_not_ended = or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > db_now())
    return ApiKeyRow.revoked_at.is_(None), has_not_ended
