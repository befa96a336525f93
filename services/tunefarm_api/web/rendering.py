"""Render the pages' templates."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from tunefarm_api.auth import ADMIN, key_of
from tunefarm_api.web.assets import asset_url
from tunefarm_db.values import ApiKey
from tunefarm_text import quantities
from tunefarm_text.bindings import short_value
from tunefarm_text.job_terms import libraries_option


def page(template: str, request: Request, **values: Any) -> HTMLResponse:
    """Return the page, as the request's key may see it."""
    posted = request.method == "POST"
    return HTMLResponse(
        render_text(template, key=key_of(request), path=request.url.path, posted=posted, **values)
    )


def render_text(
    template: str, *, key: ApiKey | None, path: str = "", posted: bool = False, **values: Any
) -> str:
    """Return a template's text. `key` is None for who has not signed in; `posted` pages answer a form."""
    scopes = frozenset() if key is None else frozenset(key.scopes)
    return (
        _environment()
        .get_template(template)
        .render(
            key=key,
            path=path,
            posted=posted,
            may_write=bool(scopes & {"write", ADMIN}),
            may_admin=ADMIN in scopes,
            **values,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tunefarm_api.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = asset_url
    environment.globals["version"] = version("tunefarm")
    environment.globals["dash"] = quantities.NONE
    for filter_function in (
        quantities.budget,
        quantities.change,
        quantities.clock,
        quantities.duration,
        quantities.figures,
        quantities.flops_per_sec,
        quantities.iso,
        libraries_option,
        quantities.latency,
        quantities.number,
        quantities.other_work,
        quantities.percent,
        quantities.plural,
        quantities.rate,
        quantities.shape,
        short_value,
        quantities.size,
        quantities.some_of,
        quantities.ratio,
        quantities.temperature,
        quantities.tuned_kernels,
        quantities.utc,
    ):
        environment.filters[filter_function.__name__] = filter_function
    return environment
