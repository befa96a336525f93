"""All pages."""

from __future__ import annotations

from tunefarm_api.web import (
    assets,
    device_actions,
    device_page,
    devices_page,
    job_actions,
    job_page,
    jobs_page,
    keys_page,
    live,
    log_file,
    models_page,
    records_page,
    sign_in,
    source_page,
    task_page,
    uploads,
    webhooks_page,
)

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
