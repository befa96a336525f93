"""Tables of devices: their peaks, calibrations and history."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from tunefarm_db.tables.base import Base
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import CalibrationOutcome, DeviceState, Json


class DeviceRow(Base):
    """A registered device: its target, state, lease and calibration."""

    __tablename__ = "devices"
    __table_args__ = (Index(None, "device_key", "state"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    device_key: Mapped[str]
    target: Mapped[Json]
    info: Mapped[Json]
    device_model: Mapped[str]
    # Of releases in which devices waited at trackers: written and read no more.
    tracker_host: Mapped[str] = mapped_column(default="")
    tracker_port: Mapped[int] = mapped_column(default=0)
    rpc_key: Mapped[str]
    by_gateway: Mapped[bool] = mapped_column(default=False)
    state: Mapped[DeviceState]
    reason: Mapped[str] = mapped_column(default="")
    ready: Mapped[bool] = mapped_column(default=False)
    held: Mapped[bool] = mapped_column(default=False)
    calibration: Mapped[Json | None]
    calibrate_at: Mapped[float | None]
    last_seen_at: Mapped[float] = mapped_column(default=db_now())
    state_since: Mapped[float | None] = mapped_column(default=db_now())
    lease_owner: Mapped[str | None]
    leased_at: Mapped[float | None]
    lease_until: Mapped[float | None]
    fence: Mapped[int] = mapped_column(default=0)
    owner: Mapped[str | None]
    created_at: Mapped[float] = mapped_column(default=db_now())


class DevicePeakRow(Base):
    """The measured peak rates of a device."""

    __tablename__ = "device_peaks"

    device_id: Mapped[str] = mapped_column(ForeignKey("devices.id"), primary_key=True)
    key: Mapped[str]
    peak: Mapped[Json]
    measured_at: Mapped[float] = mapped_column(default=db_now())


class DeviceChangeRow(Base):
    """A change of a device's state, or a command of a person."""

    __tablename__ = "device_changes"
    __table_args__ = (Index(None, "device_id", "id"), Index(None, "created_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    device_id: Mapped[str] = mapped_column(ForeignKey("devices.id"))
    event: Mapped[str]
    state: Mapped[DeviceState]
    reason: Mapped[str]
    created_at: Mapped[float] = mapped_column(default=db_now())


class CalibrationRow(Base):
    """A calibration of a device and its outcome."""

    __tablename__ = "calibrations"
    __table_args__ = (Index(None, "device_id", "id"), Index(None, "created_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    device_id: Mapped[str] = mapped_column(ForeignKey("devices.id"))
    outcome: Mapped[CalibrationOutcome]
    reason: Mapped[str]
    key: Mapped[str | None]
    time_sec: Mapped[float | None]
    reference_sec: Mapped[float | None]
    all_cores_sec: Mapped[float | None]
    all_cores_reference_sec: Mapped[float | None]
    created_at: Mapped[float] = mapped_column(default=db_now())


class DeviceSlotRow(Base):
    """Use and vitals of a device in the `width_sec` seconds after `slot_at`: a minute, later merged into wider slots."""

    __tablename__ = "device_slots"

    device_id: Mapped[str] = mapped_column(ForeignKey("devices.id"), primary_key=True)
    slot_at: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    width_sec: Mapped[int]
    work_sec: Mapped[float] = mapped_column(default=0.0)
    calibration_sec: Mapped[float] = mapped_column(default=0.0)
    measured_sec: Mapped[float] = mapped_column(default=0.0)
    beats: Mapped[int] = mapped_column(default=0)
    load: Mapped[float | None]
    temperature_celsius: Mapped[float | None]
    clock_mhz: Mapped[float | None]
