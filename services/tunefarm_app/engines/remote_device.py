"""The address of a registered device, as the engine takes it."""

from __future__ import annotations

from tunefarm_app.identity.authority import device_identity
from tunefarm_app.identity.receipts import ReceiptReader
from tunefarm_app.identity.tickets import GatewayWay
from tunefarm_app.settings import host_and_port
from tunefarm_db.values import Device
from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo


def remote_device(device: Device, gateway: GatewayWay | None = None) -> RemoteDevice:
    """Return the address of a registered device; its kernels run on as many threads as its target has cores.

    Raises:
        TransientError: ``no-gateway-here`` if this worker knows no gateway, or its agent does not dial one; ``no-keys-here`` if it
            cannot read its keys: another worker may.
    """
    cores = device.target.get("num-cores") or device.info.get("cores")
    if not device.by_gateway:
        raise TransientError(
            f"{device.name} does not dial the farm's gateway: update and restart its agent",
            code="no-gateway-here",
        )
    if gateway is None:
        raise TransientError(
            f"{device.name} is connected with the farm's gateway, but this worker has no gateway configured: set TUNEFARM_GATEWAY",
            code="no-gateway-here",
        )
    host, port = host_and_port(gateway.address)
    identity = device_identity(device.id, device.rpc_key)
    receipts = ReceiptReader.read(gateway.folder / "receipts.pem")
    machine_id = device.info.get("machine_id")
    return RemoteDevice(
        tracker_host=host,
        tracker_port=port,
        key=identity,
        info=DeviceInfo(
            model=device.device_model, num_cores=cores if isinstance(cores, int) else 1, name=device.name
        ),
        kind="cuda" if device.target.get("kind") == "cuda" else "cpu",
        fence=device.fence,
        clock_mhz=(device.calibration or {}).get("clock_mhz"),
        authority=gateway.authority(),
        machine_id=machine_id if isinstance(machine_id, str) else None,
        ticket=lambda fence, key: gateway.ticket(device.id, identity, fence, key),
        origin=lambda ticket, receipt: receipts.origin(identity, ticket, receipt),
    )
