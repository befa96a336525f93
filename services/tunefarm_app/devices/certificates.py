"""Certificates of devices: what the farm's gateway knows a device by."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from tunefarm_app.identity.authority import Authority, device_identity, thumbprint
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import host_and_port
from tunefarm_db.values import AuditAction
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccess:
    """What a device needs for the gateway.

    Attributes:
        host: The gateway's host; empty for the one that the device knows the API by.
        port: Its port.
        certificate: The device's certificate, as PEM.
        authority: The certificate of the farm's authority, as PEM: the device trusts no other.
    """

    host: str
    port: int
    certificate: str
    authority: str


def certify_device(
    services: Services, device_id: str, *, rpc_key: str, request: str, device_name: str | None = None
) -> GatewayAccess:
    """Return a new certificate for the key of the device's agent.

    Args:
        services: The process's services.
        device_id: The device.
        rpc_key: The key that the agent registered it with: the certificate is this agent's, not a former or later one's.
        request: The agent's signing request, as PEM.
        device_name: The one device that the caller may speak for; None for any.

    Raises:
        NotFoundError: ``device-not-found``: the agent must register again.
        ConflictError: ``no-gateway`` if the farm does not reach this device over a gateway.
        InvalidInputError: ``invalid-certificate-request``; ``no-authority``.
    """
    settings = services.settings
    with services.uow.read() as repos:
        device = repos.devices.get(device_id)
    if device_name not in (None, device.name) or device.rpc_key != rpc_key:
        raise NotFoundError("there is no such device", code="device-not-found", device_id=device_id)
    if not device.by_gateway or not settings.gateway or settings.gateway_dir is None:
        raise ConflictError("the farm does not reach this device over a gateway", code="no-gateway")
    authority = Authority.read(settings.gateway_dir)
    certificate = authority.certify_device(request, device_identity(device.id, device.rpc_key))
    with services.uow.write() as repos:
        repos.audit.note(
            AuditAction.DEVICE_CERTIFIED,
            device.id,
            device=device.name,
            certificate_sha256=thumbprint(certificate),
        )
    host, port = host_and_port(settings.gateway_for_devices or settings.gateway)
    log.info("device certified", device_id=device.id, name=device.name)
    return GatewayAccess(
        host=host if settings.gateway_for_devices else "",
        port=port,
        certificate=certificate,
        authority=authority.certificate,
    )
