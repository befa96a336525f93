"""The list of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.rendering import page
from tunefarm_app.devices.agent_info import Info, agent_of, gpus_of, load_of, number, whole
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.states.device import TRANSITIONS, DeviceEvent
from tunefarm_db.values import Device, DeviceState

router = APIRouter(include_in_schema=False)

_MOST_DEVICES = 500
_STEP = "step:"  # what the owner of a lease begins with where a step holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """One device, with what its agent last said about the machine.

    Attributes:
        job_id: Of the job that is at work on it.
        measured_sec: How long it has measured, over all that ever was.
        drift: How much longer its calibration took than it should, as a share.
        orders: What a person can tell it now.
    """

    device: Device
    job_id: str | None
    measured_sec: float
    cores: int | None
    load: float | None
    temperature: float | None
    clock_mhz: float | None
    drift: float | None
    orders: tuple[str, ...]


@router.get("/devices", dependencies=[needs("read")])
def devices_page(request: Request, services: ServicesDep) -> HTMLResponse:
    """The list of devices."""
    with services.uow.read() as repos:
        devices = repos.devices.list(limit=_MOST_DEVICES).items
        pools = repos.devices.keys()
        owners = [device.lease_owner or "" for device in devices if device.state is DeviceState.LEASED]
        jobs = repos.overview.jobs_of_steps([owner.removeprefix(_STEP) for owner in owners])
        measured_sec = repos.counters.all()[Counter.MEASURE_SEC]
    return page("devices.html", request, lines=device_lines(devices, jobs, measured_sec), pools=pools)


@router.get("/devices/join", dependencies=[needs("read")])
def join_reloaded() -> RedirectResponse:
    """Where a reload of the page with a token leads: it is shown once."""
    return RedirectResponse("/devices", 303)


def device_lines(
    devices: Sequence[Device], jobs: Mapping[str, str], measured_sec: Mapping[str, float]
) -> list[DeviceLine]:
    """Return a line per device, in order.

    Args:
        devices: The devices.
        jobs: Ids of jobs, by the step that holds a device for them.
        measured_sec: How long each device has measured, by its id.
    """
    return [
        _line(
            device, jobs.get((device.lease_owner or "").removeprefix(_STEP)), measured_sec.get(device.id, 0.0)
        )
        for device in devices
    ]


def _line(device: Device, job_id: str | None, measured_sec: float) -> DeviceLine:
    agent = agent_of(device.info)
    calibration = device.calibration or {}
    time_sec, reference_sec = calibration.get("time_sec"), calibration.get("reference_sec")
    return DeviceLine(
        device=device,
        job_id=job_id if device.state is DeviceState.LEASED else None,
        measured_sec=measured_sec,
        cores=whole(device.info.get("cores")),
        load=load_of(agent),
        temperature=_hottest(agent),
        clock_mhz=number(agent.get("clock_mhz")),
        drift=time_sec / reference_sec - 1 if time_sec and reference_sec else None,
        orders=_orders(device),
    )


def _orders(device: Device) -> tuple[str, ...]:
    stored = DeviceState.ONLINE if device.state is DeviceState.LEASED else device.state
    possible = {event.value for event in DeviceEvent if stored in TRANSITIONS[event]}
    if stored is DeviceState.DRAINING:
        possible.discard("drain")
    if device.held:
        possible.discard("quarantine")
    return tuple(order for order in ("release", "drain", "quarantine", "remove") if order in possible)


def _hottest(agent: Info) -> float | None:
    known = [number(reading.get("temperature_celsius")) for reading in (agent, *gpus_of(agent))]
    return max((reading for reading in known if reading is not None), default=None)
