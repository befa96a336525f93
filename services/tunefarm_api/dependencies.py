"""Declarations and dependencies of routes.

No dependency uses `yield`: FastAPI would end it, commit included, after the answer was sent.
Use cases open and commit their own unit of work, so an answer is never sent before its commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from fastapi import Depends, Path, Request, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute

from tunefarm_api.auth import needs
from tunefarm_api.errors.problems import problems
from tunefarm_api.methods import method_of
from tunefarm_api.paths import name_of
from tunefarm_app.runtime.composition import Services
from tunefarm_db.acting import acting
from tunefarm_db.repositories.farm.references import LEAST_CHARACTERS, Kind
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(_services)]


_PART_OF_ID = f"or {LEAST_CHARACTERS} or more of its first or last characters"


def _id_of(services: Services, kind: Kind, text: str) -> str:
    with services.uow.read() as repos:
        return repos.references.find(kind, name_of(text))


def _model_id(
    model_id: Annotated[
        str,
        Path(
            description=f"The model: its id, {_PART_OF_ID}; `name@version`, or its name, which means its newest version."
        ),
    ],
    services: ServicesDep,
) -> str:
    return _id_of(services, "model", model_id)


def _job_id(
    job_id: Annotated[str, Path(description=f"The job: its id, {_PART_OF_ID}, or the name of its model.")],
    services: ServicesDep,
) -> str:
    return _id_of(services, "job", job_id)


def _sweep_id(
    sweep_id: Annotated[str, Path(description=f"The sweep: its id, {_PART_OF_ID}.")], services: ServicesDep
) -> str:
    return _id_of(services, "sweep", sweep_id)


def _device_id(
    device_id: Annotated[str, Path(description=f"The device: its name, its id, {_PART_OF_ID}.")],
    services: ServicesDep,
) -> str:
    return _id_of(services, "device", device_id)


def _key_id(
    key_id: Annotated[str, Path(description=f"The key: its id, {_PART_OF_ID}.")], services: ServicesDep
) -> str:
    return _id_of(services, "key", key_id)


def _webhook_id(
    webhook_id: Annotated[str, Path(description=f"The webhook: its id, {_PART_OF_ID}.")],
    services: ServicesDep,
) -> str:
    return _id_of(services, "webhook", webhook_id)


def _delivery_id(
    delivery_id: Annotated[str, Path(description=f"The delivery: its id, {_PART_OF_ID}.")],
    services: ServicesDep,
) -> str:
    return _id_of(services, "delivery", delivery_id)


def _samples_id(
    samples_id: Annotated[str, Path(description=f"The samples: their id, {_PART_OF_ID}.")],
    services: ServicesDep,
) -> str:
    return _id_of(services, "samples", samples_id)


ModelId = Annotated[str, Depends(_model_id)]
JobId = Annotated[str, Depends(_job_id)]
SweepId = Annotated[str, Depends(_sweep_id)]
DeviceId = Annotated[str, Depends(_device_id)]
KeyId = Annotated[str, Depends(_key_id)]
WebhookId = Annotated[str, Depends(_webhook_id)]
DeliveryId = Annotated[str, Depends(_delivery_id)]
SamplesId = Annotated[str, Depends(_samples_id)]
"""Ids of what the path names: by ids, parts of ids or names."""


def _parameters(route: APIRoute) -> tuple[str, ...]:
    """Return the names of a route's query parameters."""
    parameters = get_flat_params(route.dependant)
    return tuple(
        parameter.alias for parameter in parameters if isinstance(parameter.field_info, params.Query)
    )


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not have: a mistyped filter would return everything.

    Raises:
        InvalidInputError: ``invalid-request``.
    """
    if not request.query_params:
        return
    known = _parameters(request.scope["route"])
    unknown = [clean(name, 60) for name in request.query_params if name not in known][:20]
    if not unknown:
        return
    hints = [_hint(name, known) for name in unknown]
    raise InvalidInputError(
        "; ".join(
            f"the parameter {name} is not known here{hint}" for name, hint in zip(unknown, hints, strict=True)
        ),
        code="invalid-request",
        errors=[{"where": f"query.{name}", "message": "This parameter is not known"} for name in unknown],
    )


def _hint(name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f": did you mean {near[0]}?"
    return f": there are {', '.join(known)}" if known else ": there are none"


def note_download(request: Request, subject: str | None, what: str) -> None:
    """Note in the audit log that the request gets a file."""
    if method_of(request.scope) != "HEAD":
        request.app.state.auditor.count_download(acting(), subject, what)


def operation(
    scope: str, summary: str, *statuses: int, answers: Mapping[int | str, Any] | None = None
) -> dict[str, Any]:
    """Return the declarations of a route, as keywords of a router's method.

    Args:
        scope: The scope that a request's key needs.
        summary: The route in a few words, for OpenAPI.
        *statuses: Statuses of its own problems, in addition to those of every route.
        answers: Its answers that are no problems, by status, where OpenAPI cannot tell them from the function.
    """
    return {
        "dependencies": [needs(scope), Depends(refuse_unknown_parameters)],
        "summary": summary,
        "responses": {**dict(answers or {}), **problems(*statuses)},
    }
