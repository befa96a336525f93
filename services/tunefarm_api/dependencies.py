"""Dependencies of routes. None uses `yield`: FastAPI would end it, commit included, after the answer was sent.

Use cases open and commit their own unit of work, so an answer is never sent before its commit.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from tunefarm_app.runtime.composition import Services


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(_services)]
