"""Sign a browser in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.paths import SIGN_IN, is_local
from tunefarm_api.web.forms import FormDep
from tunefarm_api.web.rendering import render_text
from tunefarm_api.web.session import drop_session, session_text, session_texts, set_session
from tunefarm_app.access.browser_sessions import end_session, link_key, sign_out_everywhere, start_session
from tunefarm_db.acting import acting
from tunefarm_db.values import ApiKey

router = APIRouter(include_in_schema=False)

_USED_LINK = "This link was used already, or has expired."


@router.get(SIGN_IN)
def sign_in_page(services: ServicesDep, next: str = "/", link: str = "") -> HTMLResponse:  # noqa: A002
    """Ask for a key. With the text of a link there is one button to press, which says for which key.

    Opening a link must not use it up, since programs that preview links open it first. And nobody is to be signed in without
    knowing, as one who is led to a link of somebody else's would then work with that one's key.
    """
    if not link:
        return _page(next)
    key = link_key(services, link.strip())
    if key is None:
        acting().problem = "sign-in"
        return _page(next, wrong=_USED_LINK, status=403)
    return _page(next, link=link, owner=key)


@router.post(SIGN_IN)
async def sign_in(request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Sign a browser in with an API key or a link."""
    link, path = form.get("link", ""), form.get("next", "/")
    text = await run_in_threadpool(start_session, services, (link or form.get("key", "")).strip())
    if text is None:
        acting().problem = "sign-in"
        wrong = _USED_LINK if link else "This is not a key of this farm."
        return _page(path, wrong=wrong, status=403)
    response = RedirectResponse(path if is_local(path) else "/", 303)
    set_session(request, response, text)
    return response


@router.post("/sign-out")
async def sign_out(request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Sign the browser out; with `everywhere`, all that are signed in with the same key."""
    text = session_text(request.scope, request.headers)
    if text is not None and "everywhere" in form:
        await run_in_threadpool(sign_out_everywhere, services, key_of(request))
    for own in session_texts(request.headers):
        await run_in_threadpool(end_session, services, own)
    response = RedirectResponse(SIGN_IN, 303)
    drop_session(request, response)
    return response


def _page(
    path: str, *, link: str = "", owner: ApiKey | None = None, wrong: str = "", status: int = 200
) -> HTMLResponse:
    way = path if is_local(path) else "/"
    text = render_text("sign_in.html", key=None, next=way, link=link, owner=owner, wrong=wrong)
    return HTMLResponse(text, status)
