"""``/v1/sign-in-links``: create links that sign a browser in."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request

from tunefarm_api.auth import key_of, needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.errors.problems import problems
from tunefarm_api.schemas.api_key import SignInLink
from tunefarm_api.web.paths import SIGN_IN
from tunefarm_app.access.browser_sessions import LINK_VALID_SEC, make_link

router = APIRouter(prefix="/v1/sign-in-links", tags=["keys"])


@router.post(
    "", status_code=201, dependencies=[needs("read")], summary="Make a sign-in link", responses=problems()
)
def create_link(request: Request, services: ServicesDep) -> SignInLink:
    """It signs one browser in to the dashboard, once, and lets it do what the request's key may do."""
    text = make_link(services, key_of(request))
    return SignInLink(path=f"{SIGN_IN}?link={text}", expires_at=time.time() + LINK_VALID_SEC)
