"""Metrics of devices: states, temperature, clocks and load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tunefarm_app.devices.agent_info import agent_of, first_gpu, load_of, number
from tunefarm_db.repositories.farm.statistics import DeviceHealth
from tunefarm_db.values import DeviceState

_STATES = tuple(state for state in DeviceState if state is not DeviceState.REMOVED)
_LABELS = ("device", "device_key")


def device_metrics(devices: tuple[DeviceHealth, ...], measured_sec: Mapping[str, float]) -> Iterator[Metric]:
    """Yield the metrics of all devices. `measured_sec`: total seconds of measuring, by device id."""
    state = GaugeMetricFamily(
        "tunefarm_device_state", "1 for the device's current state.", labels=(*_LABELS, "state")
    )
    silence = _gauge("tunefarm_device_seen_seconds", "Time since the device's last heartbeat.")
    lease_left = _gauge(
        "tunefarm_device_lease_left_seconds",
        "Time until the lease ends, unless its holder renews it.",
    )
    measured = CounterMetricFamily(
        "tunefarm_device_measure_seconds",
        "Time of measuring trials on the device; its rate is the farm's utilisation of the device.",
        labels=_LABELS,
    )
    for device in devices:
        own = (device.name, device.device_key)
        leased = device.state is DeviceState.ONLINE and device.lease_left_sec is not None
        shown = DeviceState.LEASED if leased else device.state
        for possible in _STATES:
            state.add_metric((*own, possible.value), float(possible is shown))
        silence.add_metric(own, device.seen_sec)
        if device.lease_left_sec is not None:
            lease_left.add_metric(own, device.lease_left_sec)
        measured.add_metric(own, measured_sec.get(device.id, 0.0))
    yield from (state, silence, lease_left, measured)
    yield from _vitals([device for device in devices if device.state is not DeviceState.OFFLINE])


def _vitals(devices: list[DeviceHealth]) -> Iterator[Metric]:
    """Yield the vitals of the devices, except offline ones."""
    texts = {
        "temperature_celsius": "Temperature of the GPU, else of the hottest sensor.",
        "clock_hertz": "Current clock.",
        "clock_max_hertz": "Highest rated clock.",
        "load_ratio": "Utilisation by all programs: as the GPU reports it, else the load per core.",
        "memory_used_bytes": "Used memory of the GPU.",
        "power_watts": "Power of the GPU.",
        "calibration_seconds": "Time of the last clean calibration.",
        "calibration_ratio": "Time of the last clean calibration divided by its reference; 1 is normal.",
        "calibration_all_cores_ratio": "The same for all cores at once; above 1, they slow each other down more than at first.",
    }
    families = {name: _gauge(f"tunefarm_device_{name}", text) for name, text in texts.items()}
    for device in devices:
        for name, value in _vitals_of(device).items():
            families[name].add_metric((device.name, device.device_key), value)
    yield from families.values()


def _vitals_of(device: DeviceHealth) -> dict[str, float]:
    agent = agent_of(device.info)
    gpu = first_gpu(agent)
    chip = gpu or agent
    cores = number(device.info.get("cores"))
    load = load_of(agent)
    calibration = device.calibration or {}
    took, held_against, all_took, all_held_against = (
        number(calibration.get(name))
        for name in ("time_sec", "reference_sec", "all_cores_sec", "all_cores_reference_sec")
    )
    metrics = {
        "temperature_celsius": number(chip.get("temperature_celsius")),
        "clock_hertz": _times(number(chip.get("clock_mhz")), 1e6),
        "clock_max_hertz": _times(number(chip.get("clock_max_mhz")), 1e6),
        "load_ratio": number(gpu.get("load")) if gpu else _times(load, 1 / cores if cores else None),
        "memory_used_bytes": number(gpu.get("memory_used_bytes")),
        "power_watts": number(gpu.get("power_watts")),
        "calibration_seconds": took,
        "calibration_ratio": _times(took, 1 / held_against if held_against else None),
        "calibration_all_cores_ratio": _times(all_took, 1 / all_held_against if all_held_against else None),
    }
    return {name: value for name, value in metrics.items() if value is not None}


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_LABELS)


def _times(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor
