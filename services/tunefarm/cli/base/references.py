"""Find the job, model, sweep or device that a person means: by id, by part of an id, or by name. The server knows which it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from tunefarm.client import Client, Device

T = TypeVar("T")

_WHOLE_ID = re.compile(r"(job|mdl|dev|swp)_[0-9a-z]{26}")
_KINDS = {"job": "job", "mdl": "model", "dev": "device", "swp": "sweep"}


def is_whole_id(text: str) -> bool:
    """Return whether the text is an id, and not a name or a part of an id."""
    return _WHOLE_ID.fullmatch(text) is not None


def find_job(client: Client, text: str) -> str:
    """Return the id of the job that `text` means: its id, the first or last characters of it, or its model's name (``name@2``).

    Raises:
        NotFoundError: ``job-not-found``.
        InvalidInputError: ``invalid-request``.
    """
    return text if _is_id("job", text) else _find("job", text, client.jobs.get).id


def find_model(client: Client, text: str) -> str:
    """Return the id of the model that `text` means: its id, the first or last characters of it, or its name.

    A name means its newest version, ``name@2`` the second, unless a model has just this name.

    Raises:
        NotFoundError: ``model-not-found``.
        InvalidInputError: ``invalid-request``.
    """
    return text if _is_id("model", text) else _find("model", text, client.models.get).id


def find_sweep(client: Client, text: str) -> str:
    """Return the id of the sweep that `text` means: its id, or the first or last characters of it.

    Raises:
        NotFoundError: ``sweep-not-found``.
        InvalidInputError: ``invalid-request``.
    """
    return text if _is_id("sweep", text) else _find("sweep", text, client.sweeps.get).id


def find_device(client: Client, text: str) -> Device:
    """Return the device that `text` means: its name, its id, or the first or last characters of the id.

    Raises:
        NotFoundError: ``device-not-found``.
        InvalidInputError: ``invalid-request``.
    """
    _is_id("device", text)
    return _find("device", text, client.devices.get)


def _find(kind: str, text: str, get: Callable[[str], T]) -> T:
    from tunefarm.client.errors import NotFoundError as NoSuchResource

    try:
        return get(text.strip())
    except NoSuchResource as error:
        if error.code != f"{kind}-not-found":
            raise
        raise NotFoundError(
            f"there is no {kind} {text}: `tunefarm {'device' if kind == 'device' else f'{kind}s'} list` shows them",
            code=error.code,
        ) from error


def _is_id(kind: str, text: str) -> bool:
    """Return whether the text is a whole id of this kind.

    Raises:
        InvalidInputError: ``invalid-request`` if it is empty, or a whole id of another kind.
    """
    if not text.strip():
        raise InvalidInputError(f"the name or id of a {kind} is empty", code="invalid-request")
    match = _WHOLE_ID.fullmatch(text)
    if match is not None and (other := _KINDS[match[1]]) != kind:
        raise InvalidInputError(f"{text} is the id of a {other}, not of a {kind}", code="invalid-request")
    return match is not None
