"""The list of sweeps, the form that starts one, and the page of one: a row for each of its jobs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.errors.problems import status_of
from tunefarm_api.routes.sweeps import get_sweep_report, get_sweep_report_page
from tunefarm_api.web.forms import Form, FormDep, labels_of
from tunefarm_api.web.jobs.job_form import pools_of, terms_of
from tunefarm_api.web.rendering import page
from tunefarm_app.access.quotas import QuotaError
from tunefarm_app.jobs.sweeps import SweepRequest, cancel_sweep, submit_sweep
from tunefarm_app.jobs.terms import JobTerms
from tunefarm_app.report.sweeps import SweepReport, sweep_page, sweep_report
from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Model, ModelState, SampleFile, SampleState
from tunefarm_text import job_terms
from tunefarm_text.job_terms import PRECISIONS, RUNTIMES
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError, TunefarmError

router = APIRouter(prefix="/sweeps", include_in_schema=False)

_SHOWN = 50
_MODELS_SHOWN = 100
_MODEL, _SAMPLES, _POOL, _PRECISION = "model-", "samples-", "pool-", "precision-"
"""What the names of the form's fields begin with; the rest is what is chosen."""
_FORM_ID = "form-id"
"""The hidden field by which a form that is sent twice is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """A model that a sweep can tune, with the samples that fit it."""

    model: Model
    samples: tuple[SampleFile, ...]


@router.get("", dependencies=[needs("read")])
def sweeps_page(
    request: Request, services: ServicesDep, after: Annotated[str | None, Query(max_length=40)] = None
) -> HTMLResponse:
    """The list of sweeps."""
    with services.uow.read() as repos:
        listed = sweep_page(repos, cursor=after, limit=_SHOWN)
    return page("sweeps.html", request, sweeps=listed.items, after=after, following=listed.next_cursor)


@router.get("/new", dependencies=[needs("write")])
def new_sweep(
    request: Request,
    services: ServicesDep,
    model: Annotated[list[str] | None, Query(max_length=job_terms.MAX_SWEEP_JOBS)] = None,
) -> HTMLResponse:
    """The form that starts a sweep; the address can name the models that are chosen at first."""
    with services.uow.read() as repos:
        chosen = [repos.models.get(repos.references.find("model", name)).id for name in model or ()]
    first = {"minutes": "30", "priority": "normal", f"{_PRECISION}{PRECISIONS[0]}": "1"}
    return _form_page(request, services, {**first, **{f"{_MODEL}{model_id}": "1" for model_id in chosen}})


@router.post("", dependencies=[needs("write")])
async def start(request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Start a sweep, and show it; what cannot be started is shown again, as it was filled in."""
    try:
        wanted = _request_of(form)
        # The same form, sent twice, starts one sweep; if it was changed meanwhile, it starts another.
        key = f"form {form[_FORM_ID]} {wanted.digest}" if _FORM_ID in form else None
        submitted = await run_in_threadpool(submit_sweep, services, wanted, idempotency_key=key)
    except (InvalidInputError, ConflictError, NotFoundError, QuotaError) as error:
        return await run_in_threadpool(_form_page, request, services, form, error)
    return RedirectResponse(f"/sweeps/{submitted.sweep.id}", 303)


def _form_page(
    request: Request, services: Services, given: Form, refused: TunefarmError | None = None
) -> HTMLResponse:
    with services.uow.read() as repos:
        models = _models(repos, _chosen(given, _MODEL))
        pools = pools_of(repos)
    if pools and refused is None:
        given = {f"{_POOL}{pools[0].name}": "1", **given}
    shown = page(
        "new_sweep.html",
        request,
        models=models,
        most_models=_MODELS_SHOWN,
        pools=pools,
        terms=job_terms,
        given=given,
        form_id=secrets.token_hex(16),
        refused=refused,
    )
    if refused is not None:
        shown.status_code = status_of(refused)
    return shown


def _models(repos: Repositories, chosen: list[str]) -> list[ModelLine]:
    """Return the newest models that are ready, after those others that are chosen, unless they are gone."""
    newest = repos.models.list(state=ModelState.READY, limit=_MODELS_SHOWN).items
    known = {model.id for model in newest}
    others = _present(repos, [model_id for model_id in chosen if model_id not in known])
    return [
        ModelLine(
            model=model,
            samples=tuple(
                samples for samples in repos.samples.of_model(model.id) if samples.state is SampleState.READY
            ),
        )
        for model in (*others, *newest)
    ]


def _present(repos: Repositories, model_ids: list[str]) -> Iterator[Model]:
    for model_id in model_ids:
        with suppress(NotFoundError):
            yield repos.models.get(model_id)


def _request_of(form: Form) -> SweepRequest:
    """Return what the form asks for.

    Raises:
        InvalidInputError: If a number is none, or there is no limit.
    """
    models, (tags, note) = _chosen(form, _MODEL), labels_of(form)
    samples = {model_id: form.get(f"{_SAMPLES}{model_id}", "") for model_id in models}
    return SweepRequest(
        model_ids=models,
        device_keys=_chosen(form, _POOL),
        precisions=_chosen(form, _PRECISION),
        terms=JobTerms(**terms_of(form)),
        samples={model_id: [samples_id] for model_id, samples_id in samples.items() if samples_id},
        tags=tags,
        note=note,
    )


def _chosen(form: Form, prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in form if name.startswith(prefix)]


@router.get("/{sweep_id}", dependencies=[needs("read")])
def one_sweep(request: Request, sweep_id: str, services: ServicesDep) -> HTMLResponse:
    """A sweep."""
    with services.uow.read() as repos:
        sweep = sweep_report(repos, sweep_id)
    return page("sweep.html", request, sweep=sweep, runtimes=RUNTIMES)


@router.get("/{sweep_id}/report", dependencies=[needs("read")])
def report_page(sweep_id: str, services: ServicesDep) -> Response:
    """Show a sweep's report."""
    return get_sweep_report_page(sweep_id, services)


@router.get("/{sweep_id}/report.json", dependencies=[needs("read")])
def report_json(sweep_id: str, services: ServicesDep) -> SweepReport:
    """Send a sweep's report as JSON."""
    return get_sweep_report(sweep_id, services)


@router.post("/{sweep_id}/cancel", dependencies=[needs("write")])
def cancel(sweep_id: str, services: ServicesDep) -> Response:
    """Cancel all of its jobs."""
    cancel_sweep(services, sweep_id)
    return RedirectResponse(f"/sweeps/{sweep_id}", 303)
