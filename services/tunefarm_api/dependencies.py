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


def _id_of(kind: Kind, parameter: str, meaning: str) -> params.Depends:
    """Return the dependency that reads a parameter of the path, and finds the id that it means."""
    described = Path(alias=parameter, description=meaning)

    def find(services: ServicesDep, text: str = described) -> str:
        with services.uow.read() as repos:
            return repos.references.find(kind, name_of(text))

    dependency: params.Depends = Depends(find)
    return dependency


ModelId = Annotated[
    str,
    _id_of(
        "model",
        "model_id",
        f"The model: its id, {_PART_OF_ID}; `name@version`, or its name, which means its newest version.",
    ),
]
JobId = Annotated[str, _id_of("job", "job_id", f"The job: its id, {_PART_OF_ID}, or the name of its model.")]
SweepId = Annotated[str, _id_of("sweep", "sweep_id", f"The sweep: its id, {_PART_OF_ID}.")]
DeviceId = Annotated[str, _id_of("device", "device_id", f"The device: its name, its id, {_PART_OF_ID}.")]
KeyId = Annotated[str, _id_of("key", "key_id", f"The key: its id, {_PART_OF_ID}.")]
WebhookId = Annotated[str, _id_of("webhook", "webhook_id", f"The webhook: its id, {_PART_OF_ID}.")]
DeliveryId = Annotated[str, _id_of("delivery", "delivery_id", f"The delivery: its id, {_PART_OF_ID}.")]
SamplesId = Annotated[str, _id_of("samples", "samples_id", f"The samples: their id, {_PART_OF_ID}.")]
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
