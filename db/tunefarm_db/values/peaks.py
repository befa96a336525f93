"""What the repository of peaks hands out."""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm_db.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """What a device can do at its best.

    Attributes:
        key: `Peak.key`: what it was measured with, and of what.
        peak: `Peak.to_json`.
        measured_at: When it was last measured (or was tried to be), by the database's clock.
    """

    device_id: str
    device_name: str
    device_key: str
    device_model: str
    key: str
    peak: Json
    measured_at: float
