"""Devices: who is there, who is fit, who holds which."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, case, func, or_, select, update

from tunefarm_db.columns import db_now
from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository, checked_limit, page_of
from tunefarm_db.tables import DeviceRow, table_of
from tunefarm_db.values import Device, DeviceLease, DeviceState, Json, Page
from tunefarm_tuning.errors import NotFoundError

_DEVICES = table_of(DeviceRow)


class Devices(Repository):
    """Registration, heartbeats and leases of devices.

    Concurrency: a device is leased to at most one owner at a time; each lease raises its `fence`.
    Failure: an owner that dies keeps the device until `lease_until` (by the database's clock).
    """

    def register(
        self,
        *,
        name: str,
        device_key: str,
        target: Json,
        info: Json,
        device_model: str,
        tracker_host: str,
        tracker_port: int,
        rpc_key: str,
        ready: bool = True,
        reason: str = "",
    ) -> Device:
        """Add the device, or renew what is known of the device of this name.

        It is online then, or offline for `reason` where it is not `ready`, but a quarantined device stays
        quarantined until a heartbeat says that it is healthy.
        """
        state, reason = _standing(ready, reason)
        known = {
            "device_key": device_key,
            "target": target,
            "info": info,
            "device_model": device_model,
            "tracker_host": tracker_host,
            "tracker_port": tracker_port,
            "rpc_key": rpc_key,
            "last_seen_at": db_now(),
        }
        statement = self._insert(_DEVICES).values(
            id=new_id("dev"), name=name, state=state, reason=reason, **known
        )
        quarantined = DeviceRow.state == DeviceState.QUARANTINED
        statement = statement.on_conflict_do_update(
            index_elements=["name"],
            set_={
                **known,
                "state": case((quarantined, DeviceRow.state), else_=state.value),
                "reason": case((quarantined, DeviceRow.reason), else_=reason),
            },
        )
        device = self._first(Device, statement.returning(_DEVICES))
        assert device is not None
        return device

    def get(self, device_id: str) -> Device:
        """Return a device. Raises `NotFoundError` if there is no such one."""
        device = self._first(Device, select(_DEVICES).where(DeviceRow.id == device_id))
        if device is None:
            raise _not_found(device_id)
        return device

    def list(
        self,
        *,
        device_key: str | None = None,
        state: DeviceState | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Device]:
        """Return devices, oldest first."""
        limit = checked_limit(limit)
        query = select(_DEVICES).order_by(DeviceRow.id).limit(limit + 1)
        if device_key is not None:
            query = query.where(DeviceRow.device_key == device_key)
        if state is not None:
            query = query.where(DeviceRow.state == state)
        if cursor is not None:
            query = query.where(DeviceRow.id > cursor)
        return page_of(self._all(Device, query), limit, lambda device: device.id)

    def keys(self) -> tuple[str, ...]:
        """Return every device key that a device was ever registered under."""
        return tuple(
            self._run(select(DeviceRow.device_key).distinct().order_by(DeviceRow.device_key)).scalars()
        )

    def in_pool(self, device_key: str) -> tuple[Device, ...]:
        """Return all devices of the pool, in any state."""
        return self._all(
            Device, select(_DEVICES).where(DeviceRow.device_key == device_key).order_by(DeviceRow.id)
        )

    def heartbeat(
        self,
        device_id: str,
        *,
        healthy: bool | None = None,
        ready: bool = True,
        reason: str = "",
        info: Json | None = None,
    ) -> Device:
        """Note a sign of life.

        Args:
            device_id: The device.
            healthy: True: a known kernel just ran clean, the device is online, quarantined before or not.
                False: it did not, the device is quarantined. None: no news; a quarantine stays.
            ready: Whether it can be measured on; a device that is not (its RPC server starts, or its tracker is away)
                is offline.
            reason: Why it is not healthy, or not ready.
            info: What changed about it.

        Raises:
            NotFoundError: ``device-not-found``: the agent must register again.
        """
        changes: dict[str, object] = {"last_seen_at": db_now()}
        if info is not None:
            changes["info"] = info
        state, why = _standing(ready, reason)
        if healthy is None:
            quarantined = DeviceRow.state == DeviceState.QUARANTINED
            changes["state"] = case((quarantined, DeviceRow.state), else_=state.value)
            changes["reason"] = case((quarantined, DeviceRow.reason), else_=why)
        else:
            changes["state"] = state if healthy else DeviceState.QUARANTINED
            changes["reason"] = why if healthy else (reason or "a health check failed")
        statement = update(_DEVICES).where(DeviceRow.id == device_id).values(changes)
        device = self._first(Device, statement.returning(_DEVICES))
        if device is None:
            raise _not_found(device_id)
        return device

    def quarantine(self, device_id: str, reason: str) -> Device:
        """Give the device no more work until a heartbeat says that it is healthy.

        Raises:
            NotFoundError: If there is no such device.
        """
        statement = (
            update(_DEVICES)
            .where(DeviceRow.id == device_id)
            .values(state=DeviceState.QUARANTINED, reason=reason)
        )
        device = self._first(Device, statement.returning(_DEVICES))
        if device is None:
            raise _not_found(device_id)
        return device

    def mark_stale(self, after_sec: float) -> tuple[Device, ...]:
        """Set online devices offline that gave no sign of life for `after_sec`; return them."""
        statement = (
            update(_DEVICES)
            .where(DeviceRow.state == DeviceState.ONLINE, DeviceRow.last_seen_at < db_now() - after_sec)
            .values(state=DeviceState.OFFLINE, reason=f"no heartbeat for {after_sec:g} s")
        )
        return self._all(Device, statement.returning(_DEVICES))

    def lease(self, device_key: str, owner: str, lease_sec: float) -> DeviceLease | None:
        """Take a free, online device of the pool for `lease_sec`, under a new fence; None where none is free."""
        chosen = (
            select(DeviceRow.id)
            .where(
                DeviceRow.device_key == device_key,
                DeviceRow.state == DeviceState.ONLINE,
                or_(DeviceRow.lease_until.is_(None), DeviceRow.lease_until < db_now()),
            )
            .order_by(DeviceRow.fence, DeviceRow.id)  # the least used first
            .limit(1)
            .with_for_update(skip_locked=True)  # SQLite leaves it out: BEGIN IMMEDIATE has locked already
            .scalar_subquery()
        )
        statement = (
            update(_DEVICES)
            .where(DeviceRow.id == chosen)
            .values(lease_owner=owner, lease_until=db_now() + lease_sec, fence=DeviceRow.fence + 1)
        )
        device = self._first(Device, statement.returning(_DEVICES))
        if device is None:
            return None
        assert device.lease_until is not None
        return DeviceLease(device=device, owner=owner, fence=device.fence, lease_until=device.lease_until)

    def renew_lease(self, device_id: str, fence: int, lease_sec: float) -> bool:
        """Hold the device for another `lease_sec` from now; False means that it is no longer ours."""
        statement = update(_DEVICES).where(_held(device_id, fence)).values(lease_until=db_now() + lease_sec)
        return self._run(statement).rowcount == 1

    def release_lease(self, device_id: str, fence: int) -> bool:
        """Give the device back; False means that it was no longer ours, and nothing changed."""
        statement = update(_DEVICES).where(_held(device_id, fence)).values(lease_owner=None, lease_until=None)
        return self._run(statement).rowcount == 1

    def count_by_state(self, device_key: str) -> dict[DeviceState, int]:
        """Return how many devices of the pool are in each state; empty where the pool is unknown."""
        query = (
            select(DeviceRow.state, func.count())
            .where(DeviceRow.device_key == device_key)
            .group_by(DeviceRow.state)
        )
        return {row[0]: row[1] for row in self._run(query)}


def _held(device_id: str, fence: int) -> ColumnElement[bool]:
    return and_(DeviceRow.id == device_id, DeviceRow.fence == fence, DeviceRow.lease_owner.is_not(None))


def _standing(ready: bool, reason: str) -> tuple[DeviceState, str]:
    return (DeviceState.ONLINE, "") if ready else (DeviceState.OFFLINE, reason or "it is not ready")


def _not_found(device_id: str) -> NotFoundError:
    return NotFoundError("there is no such device", code="device-not-found", device_id=device_id)
