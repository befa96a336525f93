"""Enrolment: exchanges an administrator's token for the device's own credential.

A token is an API key that can only enrol one machine, once and for a short time. The credential is an API key that can
only register one device and report for it. A machine that lost the answer may ask again within a minute, as long as nobody
has used the credentials that it did not get.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import structlog

from tunefarm_app.access.api_keys import is_credential, is_valid, new_key_text
from tunefarm_app.devices.credentials import valid_sec as credential_valid_sec
from tunefarm_app.devices.register import GUEST, check_name
from tunefarm_app.runtime.composition import Services
from tunefarm_db.acting import acting
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import ApiKey, AuditAction
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError

log = structlog.stdlib.get_logger(__name__)

ENROL_SCOPE = "enrol"
TOKEN_VALID_SEC = 900.0
_AGAIN_SEC = 60.0
"""How long a used token is valid for the same machine, whose first answer may have been lost."""

_OF_GPU = r"-gpu[0-9]{1,3}"
"""What the names of a machine's GPUs add to its own."""


def create_enrolment_token(
    services: Services,
    *,
    device_key: str | None = None,
    device_name: str | None = None,
    valid_sec: float = TOKEN_VALID_SEC,
    guest: bool = False,
    by_key_id: str | None = None,
) -> tuple[ApiKey, str]:
    """Create a token; return it and its full text, which is not stored.

    Args:
        services: The process's services.
        device_key: The pool that the device may join; None for any.
        device_name: The device that may use it; None for any new one.
        valid_sec: Validity in seconds.
        guest: Whether the device is somebody else's: its records then count in its own pool alone.
        by_key_id: The key of the request, for the log.

    Raises:
        InvalidInputError: ``invalid-device``; of a guest's token without a pool, too.
    """
    if guest and device_key is None:
        raise InvalidInputError(
            "a guest's token must name the pool that it may join", code="invalid-device", field="device_key"
        )
    for field, value in (("device_key", device_key), ("name", device_name)):
        if value is not None:
            check_name(field, value)
    new = new_key_text()
    with services.uow.write() as repos:
        key = repos.api_keys.add(
            key_id=new.key_id,
            name=f"enrolment of {device_name or 'a device'}",
            secret_sha256=new.secret_sha256,
            scopes=[ENROL_SCOPE, *([GUEST] if guest else [])],
            valid_sec=valid_sec,
            device_name=device_name,
            device_key=device_key,
            account=acting().owner,
        )
        repos.audit.note(
            AuditAction.TOKEN_CREATED, key.id, device=device_name, device_key=device_key, guest=guest
        )
    log.info("enrolment token created", api_key_id=key.id, device_key=device_key, by_key_id=by_key_id)
    return key, new.text


def enrol_devices(
    services: Services, token: ApiKey, *, names: Sequence[str], device_key: str
) -> list[tuple[ApiKey, str]]:
    """Use the token; return a credential and its full text for each device of a machine, in the order of `names`.

    Earlier credentials of these devices are revoked.

    Args:
        services: The process's services.
        token: An enrolment token, or an administrator's key. A token for the device ``box`` is valid for its GPUs
            ``box-gpu0``, ``box-gpu1``, … too.
        names: The devices.
        device_key: Their pool.

    Raises:
        InvalidInputError: ``invalid-device``.
        ConflictError: ``enrolment-other-device`` if the token is for another device or pool; ``enrolment-used``;
            ``device-name-taken`` if a device of that name exists and the token does not name it.
    """
    for name in names:
        check_name("name", name)
    check_name("device_key", device_key)
    if len(set(names)) < len(names):
        raise InvalidInputError("two devices have the same name", code="invalid-device", field="also")
    others = [name for name in names if not _is_for(token, name)]
    if others or token.device_key not in (None, device_key):
        if token.rotated_at is not None:
            raise _used()
        raise ConflictError(
            f"the token is for the device {token.device_name or '(any)'} in the pool {token.device_key or '(any)'}, "
            f"not for {(others or names)[0]} in {device_key}",
            code="enrolment-other-device",
        )
    is_token = ENROL_SCOPE in token.scopes
    is_for_new = is_token and token.device_name is None
    new_keys = [new_key_text() for _ in names]
    keys = []
    with services.uow.write() as repos:
        if is_token:
            _use(repos, token.id, names)
        for name, new in zip(names, new_keys, strict=True):
            if is_for_new and repos.devices.find(name) is not None:
                raise ConflictError(
                    f"a device {name} exists already: choose another name, remove that device, or create a "
                    "token with its name",
                    code="device-name-taken",
                    name=name,
                )
            repos.api_keys.revoke_of_device(name, but=token.id)
            keys.append(
                repos.api_keys.add(
                    key_id=new.key_id,
                    name=f"device {name}",
                    secret_sha256=new.secret_sha256,
                    scopes=["device", *([GUEST] if GUEST in token.scopes else [])],
                    valid_sec=credential_valid_sec(services.settings),
                    device_name=name,
                    device_key=device_key,
                    account=token.account,
                )
            )
            repos.audit.note(AuditAction.DEVICE_ENROLLED, keys[-1].id, device=name, device_key=device_key)
    for key in keys:
        log.info(
            "device enrolled",
            name=key.device_name,
            device_key=device_key,
            api_key_id=key.id,
            token_id=token.id,
        )
    return [(key, new.text) for key, new in zip(keys, new_keys, strict=True)]


def _use(repos: Repositories, token_id: str, names: Sequence[str]) -> None:
    """Use the token for these devices, or again for them.

    Raises:
        ConflictError: ``enrolment-used``.
    """
    token = repos.api_keys.get(token_id, lock=True)
    if not is_valid(token, repos.now()) or (
        token.rotated_at is not None and not _is_unheard(repos, token, names)
    ):
        raise _used()
    if token.rotated_at is None:
        repos.api_keys.rotate(token.id, _AGAIN_SEC, own_end=token.expires_at)
        repos.api_keys.bind(token.id, token.device_name or re.sub(f"{_OF_GPU}$", "", names[0]))


def _used() -> ConflictError:
    return ConflictError(
        "the enrolment token is invalid: it was used already, or has expired. `tunefarm device token` creates another",
        code="enrolment-used",
    )


def _is_unheard(repos: Repositories, token: ApiKey, names: Sequence[str]) -> bool:
    """Return whether the token enrolled these devices alone, and none has used the credential that it was answered."""
    answered = [
        key
        for key in repos.api_keys.list()
        if is_credential(key)
        and key.revoked_at is None
        and key.device_name is not None
        and key.created_at >= (token.rotated_at or 0.0)
        and _is_for(token, key.device_name)
    ]
    return {key.device_name for key in answered} == set(names) and all(
        key.last_used_at is None for key in answered
    )


def _is_for(token: ApiKey, name: str) -> bool:
    if token.device_name in (None, name):
        return True
    return re.fullmatch(re.escape(str(token.device_name)) + _OF_GPU, name) is not None
