"""All pages."""

from __future__ import annotations

from tunefarm_api.web import assets, job_actions, job_page, jobs_page, live, sign_in

PAGES = (
    assets.router,
    sign_in.router,
    live.router,
    jobs_page.router,
    job_page.router,
    job_actions.router,
)
