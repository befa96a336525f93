"""Which device gets a certificate for the gateway, and what a worker needs for a session with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_farm import Farm, farm_settings, make_farm
from cryptography import x509
from pydantic import ValidationError

from tunefarm_app.devices.certificates import certify_device
from tunefarm_app.devices.commands import remove_device
from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.remote_device import remote_device
from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.identity.tickets import TicketReader
from tunefarm_app.runtime.composition import gateway_way
from tunefarm_tuning.core.errors import (
    ConflictError,
    DeviceLostError,
    InvalidInputError,
    NotFoundError,
    TransientError,
)
from tunefarm_tuning.measure.device import is_this_machine
from tunefarm_tuning.process.relay.key import RelayKey
from tunefarm_tuning.target.host import host_device_model, machine_id
from tunefarm_workers.device.tunnel.certificate import DeviceKey, renewal_at

REQUEST = DeviceKey().request


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    ensure_authority(tmp_path / "keys")
    return tmp_path / "keys"


@pytest.fixture
def farm(tmp_path: Path, keys: Path) -> Iterator[Farm]:
    farm = make_farm(farm_settings(tmp_path, gateway="[::1]:9443", gateway_dir=keys))
    yield farm
    farm.services.close()


def test_a_device_is_certified_under_its_own_name(farm: Farm) -> None:
    device = farm.add_device("a", by_gateway=True, rpc_key="key")
    assert device.by_gateway
    access = certify_device(farm.services, device.id, rpc_key="key", request=REQUEST, device_name="a")
    assert (access.host, access.port) == ("", 9443)
    certificate = x509.load_pem_x509_certificate(access.certificate.encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(access.authority.encode()))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [f"tunefarm:device:{device.id}/key"]
    assert (
        0.4 * 86_400
        < renewal_at(access.certificate) - certificate.not_valid_before_utc.timestamp()
        < 0.6 * 86_400
    )


def test_devices_may_know_the_gateway_by_another_address(tmp_path: Path, keys: Path) -> None:
    farm = make_farm(
        farm_settings(tmp_path, gateway="inside:1", gateway_for_devices="farm.example:2", gateway_dir=keys)
    )
    device = farm.add_device("a", by_gateway=True, rpc_key="key")
    access = certify_device(farm.services, device.id, rpc_key="key", request=REQUEST)
    assert (access.host, access.port) == ("farm.example", 2)
    farm.services.close()


def test_nobody_is_certified_as_another(farm: Farm) -> None:
    device = farm.add_device("a", by_gateway=True, rpc_key="key")
    of_a_tracker = farm.add_device("b", rpc_key="other")
    assert not of_a_tracker.by_gateway
    for device_id, rpc_key, name in (
        (device.id, "key", "b"),
        (device.id, "former", "a"),
        ("dev_none", "key", None),
    ):
        with pytest.raises(NotFoundError):
            certify_device(farm.services, device_id, rpc_key=rpc_key, request=REQUEST, device_name=name)
    with pytest.raises(ConflictError) as caught:
        certify_device(farm.services, of_a_tracker.id, rpc_key="other", request=REQUEST)
    assert caught.value.code == "no-gateway"
    with pytest.raises(InvalidInputError) as refused:
        certify_device(farm.services, device.id, rpc_key="key", request="mine")
    assert refused.value.code == "invalid-certificate-request"


def test_a_device_of_a_tracker_registers_again(farm: Farm) -> None:
    """Its row is of an older farm's, and its agent dials the gateway once it is asked to."""
    device = farm.add_device("a")
    with pytest.raises(NotFoundError) as caught:
        heartbeat(farm.services, device.id)
    assert caught.value.code == "device-not-found"
    with pytest.raises(TransientError, match="does not dial the farm's gateway"):
        remote_device(device, gateway_way(farm.services.settings, farm.services.uow))
    assert farm.add_device("a", by_gateway=True).id == device.id
    assert heartbeat(farm.services, device.id).by_gateway


def test_a_farm_without_a_gateway_reaches_no_device(tmp_path: Path) -> None:
    farm = make_farm(farm_settings(tmp_path))
    device = farm.add_device("a", by_gateway=True)
    assert not device.by_gateway
    farm.services.close()
    with pytest.raises(ValidationError, match="TUNEFARM_GATEWAY_DIR is needed"):
        farm_settings(tmp_path, gateway="g:1")


def test_a_ticket_takes_the_lease_that_holds_the_device_now(farm: Farm, keys: Path) -> None:
    device = farm.add_device("a", by_gateway=True, rpc_key="key")
    with farm.services.uow.write() as repos:
        lease = repos.devices.lease(device.device_key, "step:1", 60.0)
    assert lease is not None
    way = gateway_way(farm.services.settings, farm.services.uow)
    assert way is not None
    remote = remote_device(lease.device, way)
    assert (remote.tracker_host, remote.tracker_port, remote.key) == ("::1", 9443, f"{device.id}/key")
    assert "ticket" not in remote.to_json()
    ticket = TicketReader.read(keys / "gateway/tickets.pem").ticket(
        remote.opening(RelayKey().public)["ticket"]
    )
    assert (ticket.device, ticket.fence) == (f"{device.id}/key", lease.fence)
    with farm.services.uow.write() as repos:
        repos.devices.release_lease(device.id, lease.fence)
    with pytest.raises(DeviceLostError):
        remote.opening(RelayKey().public)
    with farm.services.uow.write() as repos:
        later = repos.devices.lease(device.device_key, "step:2", 60.0)
    assert later is not None
    with pytest.raises(DeviceLostError):
        remote.opening(RelayKey().public)
    now = remote_device(later.device, way)
    assert now.opening(RelayKey().public)["ticket"]
    with pytest.raises(TransientError) as caught:  # another worker may know it
        remote_device(later.device)
    assert caught.value.code == "no-gateway-here"
    remove_device(farm.services, device.id)
    with pytest.raises(DeviceLostError):
        now.opening(RelayKey().public)


def test_a_certificate_that_has_ended_by_our_clock_is_not_asked_for_again_at_once(keys: Path) -> None:
    access = ensure_authority(keys).certify_device(DeviceKey().request, "dev_1/key")
    far = time.time() + 1e6
    assert renewal_at(access, lambda: far) >= far + 60.0


def test_a_device_behind_the_gateway_is_this_machine_by_its_id_alone(farm: Farm) -> None:
    """The gateway is on loopback here, and the device anywhere."""
    way = gateway_way(farm.services.settings, farm.services.uow)
    model = host_device_model()
    device = farm.add_device(
        "a",
        "here",
        by_gateway=True,
        device_model=model,
        info={"machine_id": machine_id()},
    )
    other = farm.add_device(
        "b",
        "there",
        by_gateway=True,
        device_model=model,
        info={"machine_id": "f" * 16},
    )
    assert is_this_machine(remote_device(device, way))
    assert not is_this_machine(remote_device(other, way))
