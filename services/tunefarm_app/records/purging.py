"""Purging: removes records that are not trusted: those that a device measured, or that a key imported."""

from __future__ import annotations

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.rows import best_latency_sec
from tunefarm_db.repositories.records.purges import Purged
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction

log = structlog.stdlib.get_logger(__name__)


def purge_records(
    services: Services,
    device_id: str,
    *,
    certificate_sha256: str | None = None,
    ticket_jti: str | None = None,
    by_key_id: str | None = None,
) -> Purged:
    """Delete the records that the device measured, and show the best that is left. The artifacts that were compiled with them stay: their jobs are named.

    Args:
        services: The process's services.
        device_id: The device; it may have been removed.
        certificate_sha256: Only what was measured while its agent was connected by this certificate.
        ticket_jti: Only what was measured in the session of this ticket.
        by_key_id: The key of the request, for the log.

    Raises:
        NotFoundError: ``device-not-found``.
    """
    said = {"certificate_sha256": certificate_sha256, "ticket_jti": ticket_jti}
    origin = {name: text for name, text in said.items() if text is not None}
    with services.uow.write() as repos:
        device = repos.devices.get(device_id, removed=True)
        purged = repos.purges.purge_device(device.id, **origin)
        if not origin:  # timings of networks do not say which session they are of
            repos.network_timings.purge_device(device.id)
        _show_what_is_left(repos, purged)
        repos.audit.note(AuditAction.RECORDS_PURGED, device.id, records=purged.records, **origin)
    log.warning(
        "records purged",
        device_id=device.id,
        name=device.name,
        records=purged.records,
        used_by=list(purged.used_by),
        **origin,
        by_key_id=by_key_id,
    )
    return purged


def purge_imports(services: Services, key_id: str, *, by_key_id: str | None = None) -> Purged:
    """Delete the records that a key, or another one of its rotation, imported, and show the best that is left.

    Args:
        services: The process's services.
        key_id: The key; it may have been revoked.
        by_key_id: The key of the request, for the log.

    Raises:
        NotFoundError: ``key-not-found``.
    """
    with services.uow.write() as repos:
        owner = repos.api_keys.get(key_id).owner
        purged = repos.purges.purge_imports(owner)
        _show_what_is_left(repos, purged)
        repos.audit.note(AuditAction.RECORDS_PURGED, owner, records=purged.records)
    log.warning(
        "imported records purged",
        owner=owner,
        records=purged.records,
        used_by=list(purged.used_by),
        by_key_id=by_key_id,
    )
    return purged


def _show_what_is_left(repos: Repositories, purged: Purged) -> None:
    for job_id in purged.shown_by:
        repos.jobs.set_best_latency(job_id, best_latency_sec(repos.jobs.tasks(job_id)))
