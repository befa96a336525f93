"""The list of all pages' routers."""

from __future__ import annotations

from tunefarm_api.web import (
    assets,
    keys_page,
    live,
    models_page,
    records_page,
    sign_in,
    uploads,
    webhooks_page,
)
from tunefarm_api.web.devices import device_actions, device_page, devices_page
from tunefarm_api.web.jobs import job_actions, job_page, jobs_page, log_file, source_page, task_page

PAGES = tuple(
    module.router
    for module in (
        assets,
        sign_in,
        live,
        jobs_page,
        job_page,
        task_page,
        source_page,
        job_actions,
        log_file,
        models_page,
        uploads,
        devices_page,
        device_page,
        device_actions,
        records_page,
        webhooks_page,
        keys_page,
    )
)
