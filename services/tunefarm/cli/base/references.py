"""Find the job, model or device that a person means: by id, by part of an id, or by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from tunefarm.client import Client, Device, Model

T = TypeVar("T")

_WHOLE_ID = re.compile(r"(job|mdl|dev|swp)_[0-9a-z]{26}")
_KINDS = {"job": "job", "mdl": "model", "dev": "device", "swp": "sweep"}
_MOST_NAMED = 5


def is_whole_id(text: str) -> bool:
    """Return whether the text is an id, and not a name or a part of an id."""
    return _WHOLE_ID.fullmatch(text) is not None


def find_job(client: Client, text: str) -> str:
    """Return the id of the job that `text` means: its id, the first or last characters of it, or its model's name (``name@2``).

    As everywhere, a name comes before a version: ``name@2`` is the model of this name, if there is one.

    Raises:
        NotFoundError: ``job-not-found``.
        InvalidInputError: ``ambiguous``, ``invalid-request``.
    """
    if _is_id("job", text):
        return text
    models = list(client.models.all())
    is_name = text.strip() in {model.name for model in models}
    names = {model.id: {model.name if is_name else model.named} for model in models}
    jobs = {
        job.id: (
            names.get(job.model_id, set()),
            f"{job.id} ({job.state}, created {quantities.local_time(job.created_at)})",
        )
        for job in client.jobs.all()
    }
    return _choose("job", text, jobs)


def find_model(client: Client, text: str) -> str:
    """Return the id of the model that `text` means: its id, the first or last characters of it, or its name.

    A name means its newest version, ``name@2`` the second, unless a model has just this name.

    Raises:
        NotFoundError: ``model-not-found``.
        InvalidInputError: ``ambiguous``, ``invalid-request``.
    """
    if _is_id("model", text):
        return text
    newest: dict[str, Model] = {}
    models = list(client.models.all())
    for model in models:
        if model.name not in newest or model.version > newest[model.name].version:
            newest[model.name] = model
    if (named := newest.get(text.strip())) is not None:
        return named.id
    candidates = {
        model.id: (
            {model.named},
            f"{model.id} ({model.named}, uploaded {quantities.local_time(model.created_at)})",
        )
        for model in models
    }
    return _choose("model", text, candidates)


def find_sweep(client: Client, text: str) -> str:
    """Return the id of the sweep that `text` means: its id, or the first or last characters of it.

    Raises:
        NotFoundError: ``sweep-not-found``.
        InvalidInputError: ``ambiguous``, ``invalid-request``.
    """
    if _is_id("sweep", text):
        return text
    sweeps = {
        sweep.id: (
            set[str](),
            f"{sweep.id} ({sweep.state}, created {quantities.local_time(sweep.created_at)})",
        )
        for sweep in client.sweeps.all()
    }
    return _choose("sweep", text, sweeps)


def find_device(client: Client, text: str) -> Device:
    """Return the device that `text` means: its name, its id, or the first or last characters of the id.

    Raises:
        NotFoundError: ``device-not-found``.
        InvalidInputError: ``ambiguous``, ``invalid-request``.
    """
    _is_id("device", text)
    devices = {device.id: device for device in client.devices.list()}
    names = {device.id: ({device.name}, f"{device.name} ({device.id})") for device in devices.values()}
    return devices[_choose("device", text, names)]


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


def _choose(kind: str, text: str, candidates: Mapping[str, tuple[Collection[str], str]]) -> str:
    """Return the id that `text` means.

    Args:
        kind: What it is.
        text: A name, an id, or a part of one, as pages write it (``…h6z1vw``).
        candidates: By id: its names, and how a message lists it.
    """
    part = text.strip().lstrip("….")
    command = "device" if kind == "device" else f"{kind}s"
    matches = [candidate for candidate, (names, _) in candidates.items() if text.strip() in names]
    if not matches and part:
        begins = (part, f"{_prefix(candidates)}{part}")
        matches = [
            candidate for candidate in candidates if candidate.startswith(begins) or candidate.endswith(part)
        ]
    if not matches:
        raise NotFoundError(
            f"there is no {kind} {text}: `tunefarm {command} list` shows them", code=f"{kind}-not-found"
        )
    if len(matches) > 1:
        listed = _listed(candidates[candidate][1] for candidate in matches)
        raise InvalidInputError(
            f"{text} can be one of {len(matches)} {kind}s: {listed}; give more of the id", code="ambiguous"
        )
    return matches[0]


def _prefix(ids: Iterable[str]) -> str:
    """Return the part of the ids that says their kind, ``job_``."""
    return next((first.partition("_")[0] + "_" for first in ids), "")


def _listed(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return ", ".join(listed[:_MOST_NAMED]) + more
