"""Facts that the farm adds to a compiler's report: the device, and the origin of the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tunefarm_app.devices.agent_info import gpus_of, mapping, whole
from tunefarm_db.values import Device, Record
from tunefarm_tuning.measure.peak import Peak

FARM = "farm"
"""The key of the facts in an artifact's report."""

PEAK = "peak"

TIMED_ON = "timed_on"
"""The key of the device that measured the report's latency, if not the compile did."""


def farm_facts(
    device: Device, records: Mapping[str, Record], pool: Iterable[Device], peak: Peak | None = None
) -> dict[str, Any]:
    """Return the facts as JSON, without addresses and machine ids, because people pass reports on.

    Args:
        device: The device of the compile step; it may be gone when the report is read.
        records: The best record of each workload.
        pool: The devices that may have measured the records.
        peak: The device's peak.
    """
    names = {device.id: device.name for device in pool}
    return {
        "device": device_facts(device),
        PEAK: None if peak is None else peak.to_json(),
        "records": {
            key: {
                "record_id": record.id,
                "job_id": record.job_id,
                "device": names.get(record.device_id) if record.device_id else None,
                "certificate_sha256": record.certificate_sha256,
                "ticket_jti": record.ticket_jti,
            }
            for key, record in records.items()
        },
    }


def peak_in(facts: Mapping[str, Any]) -> Peak | None:
    """Return the device's peak that the farm knew at the compile; None if it knew none.

    Raises:
        ValueError: If it cannot be read.
    """
    return Peak.from_json(facts[PEAK]) if facts.get(PEAK) else None


def device_facts(device: Device) -> dict[str, Any]:
    """Return a device as it described itself, without addresses and machine ids."""
    info = device.info
    return {
        "name": device.name,
        "device_model": device.device_model,
        "cpu": _text(info.get("cpu")),
        "gpus": [str(gpu.get("name", "")) for gpu in gpus_of(info)],
        "cores": whole(info.get("cores")),
        "memory_bytes": whole(info.get("memory_bytes")),
        "system": _text(info.get("system")),
        "versions": {str(name): str(text) for name, text in mapping(info.get("versions")).items()},
        "calibration_sec": device.calibration.get("time_sec") if device.calibration else None,
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
