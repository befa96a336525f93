"""Build the application from its settings. Nothing is connected before the lifespan begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from tunefarm_api.auth import needs
from tunefarm_api.concurrency import RequestsUnderWay
from tunefarm_api.errors.problems import install_handlers
from tunefarm_api.gate import Gate
from tunefarm_api.kept_answer import KeptAnswer
from tunefarm_api.methods import HeadAsGet
from tunefarm_api.openapi import describe
from tunefarm_api.paths import SlashesInNames
from tunefarm_api.readiness import look_at_readiness
from tunefarm_api.request_scope import RequestScope
from tunefarm_api.routes import (
    audit,
    device_history,
    devices,
    health,
    job_details,
    jobs,
    keys,
    models,
    records,
    samples,
    signing,
    sweeps,
    uploads,
    webhooks,
)
from tunefarm_api.web import (
    assets,
    audit_page,
    keys_page,
    live,
    models_page,
    records_page,
    samples_page,
    sign_in,
    sweeps_page,
    webhooks_page,
)
from tunefarm_api.web.devices import device_actions, device_page, devices_page
from tunefarm_api.web.front import PageFront
from tunefarm_api.web.jobs import (
    comparison_page,
    job_actions,
    job_page,
    jobs_page,
    log_file,
    source_page,
    task_page,
)
from tunefarm_api.web.live import Live
from tunefarm_app.access.audit import Auditor
from tunefarm_app.access.rates import KeyRates, StrangerRates
from tunefarm_app.operations.doctor import examine
from tunefarm_app.operations.reconcile import Reconciler
from tunefarm_app.runtime.composition import compose, for_requests
from tunefarm_app.settings import Settings
from tunefarm_app.webhooks.sender import WebhookSender
from tunefarm_db.schema import check_schema

_DESCRIPTION = """
Upload a network, tune it on your own devices, and download one artifact that is checked, and never slower than the untuned
network.

Every error is a problem document (RFC 9457) with a stable `code`. Lists come in parts: send `next_cursor` back as
`cursor`. HEAD works wherever GET does. Times are Unix seconds. A route refuses members of a body and query parameters
that it does not know.
"""


def create_app(
    settings: Settings, *, allowed_hosts: Collection[str] | None = None, reconcile: bool = True
) -> FastAPI:
    """Return the API.

    Args:
        settings: Settings of the process: database, store, broker, limits.
        allowed_hosts: Host names that requests may use (`gate.LOOPBACK_HOSTS` for a server on loopback); None for any.
        reconcile: Whether this process runs the reconciler too, and tells webhooks.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services = compose(settings)
        answering = for_requests(services)
        app.state.services = answering
        app.state.live = Live()
        app.state.rates = KeyRates(settings)
        app.state.stranger_rates = StrangerRates(settings)
        app.state.under_way = RequestsUnderWay(settings.max_requests)
        app.state.readiness = KeptAnswer(look_at_readiness)
        app.state.checks = KeptAnswer(examine)
        app.state.auditor = auditor = Auditor(services)
        try:
            await run_in_threadpool(check_schema, services.uow.engine)
            reconciler, sender = Reconciler(services), WebhookSender(services)
            auditor.start()
            if reconcile:
                reconciler.start()
                sender.start()
            try:
                yield
            finally:
                await run_in_threadpool(auditor.stop)
                if reconcile:
                    await run_in_threadpool(sender.stop)
                    await run_in_threadpool(reconciler.stop)
        finally:
            answering.dispatcher.close()
            services.close()

    app = FastAPI(
        title="tunefarm",
        version=version("tunefarm"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        # The stock pages load scripts from elsewhere and would need no key.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        routes=_routes(),
    )
    install_handlers(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Gate, allowed_hosts=allowed_hosts)
    app.add_middleware(SlashesInNames)
    app.add_middleware(RequestScope)
    app.add_middleware(PageFront)  # the middleware that is added last is the outermost
    return app


@cache
def _routes() -> list[BaseRoute]:
    """Return the routes of every app of this process: FastAPI prepares each once, at the first request."""
    router = APIRouter(generate_unique_id_function=_operation_id)
    for routes in (
        health,
        models,
        samples,
        uploads,
        jobs,
        job_details,
        sweeps,
        devices,
        device_history,
        records,
        keys,
        audit,
        signing,
        webhooks,
    ):
        router.include_router(routes.router)
    for page in (
        assets,
        sign_in,
        live,
        jobs_page,
        comparison_page,
        job_page,
        task_page,
        source_page,
        job_actions,
        log_file,
        sweeps_page,
        models_page,
        samples_page,
        devices_page,
        device_page,
        device_actions,
        records_page,
        webhooks_page,
        keys_page,
        audit_page,
    ):
        router.include_router(page.router)
    router.include_router(_openapi_router())
    return router.routes


def _openapi_router() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/v1/openapi.json", dependencies=[needs("read")])
    async def openapi(request: Request) -> JSONResponse:
        return JSONResponse(describe(request.app))

    return router


def _operation_id(route: APIRoute) -> str:
    return route.name
