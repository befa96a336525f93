"""Devices: registration, heartbeats, states and leases."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, Unpack

from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select, type_coerce, update

from tunefarm_db.acting import acting
from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository, equal
from tunefarm_db.repositories.devices.history import DeviceHistory
from tunefarm_db.repositories.devices.slots import DeviceSlots
from tunefarm_db.states.device import TRANSITIONS, DeviceEvent
from tunefarm_db.tables import DeviceRow, table_of
from tunefarm_db.tables.columns import EnumText, db_now
from tunefarm_db.values import Device, DeviceLease, DeviceState, Json, Page, PoolCounts
from tunefarm_tuning.core.errors import NotFoundError
from tunefarm_tuning.core.untrusted_text import clean

_DEVICES = table_of(DeviceRow)

CALIBRATION = "calibration:"
"""Prefix of the owner of a calibration's lease."""

FIRST_CHECK = "it came online, and is calibrated before it gets work"


def shown_state() -> ColumnElement[DeviceState]:
    """Return the state that users see: an online device with a running lease is leased."""
    leased = and_(DeviceRow.state == DeviceState.ONLINE, _is_leased())
    shown = case((leased, DeviceState.LEASED.value), else_=DeviceRow.state)
    return type_coerce(shown, EnumText(DeviceState))


def columns() -> list[ColumnElement[Any]]:
    """Return the columns of a `Device`, with the state that users see."""
    left_out = ("state", "tracker_host", "tracker_port")
    others: list[ColumnElement[Any]] = [column for column in _DEVICES.c if column.name not in left_out]
    return [*others, shown_state().label("state")]


def transition(event: DeviceEvent, reason: str | None = None) -> dict[str, Any]:
    """Return the values of an UPDATE for `event`: the state by `TRANSITIONS`, and the reason if one is given."""
    ways = TRANSITIONS[event]
    # An event of the device neither ends a person's quarantine nor changes its reason.
    exceptions = [DeviceRow.held.is_(True)] if event in (DeviceEvent.CLEAN, DeviceEvent.FAIL) else []
    leaves = [old for old, new in ways.items() if old is not new]
    values: dict[str, Any] = {
        "state": case(
            *((held, DeviceRow.state) for held in exceptions),
            *((DeviceRow.state == old, new.value) for old, new in ways.items()),
            else_=DeviceRow.state,
        ),
        "state_since": case(
            *((held, DeviceRow.state_since) for held in exceptions),
            (DeviceRow.state.in_(leaves), db_now()),
            else_=DeviceRow.state_since,
        ),
    }
    if reason is not None:
        values["reason"] = case(
            *((held, DeviceRow.reason) for held in exceptions),
            (DeviceRow.state.in_(list(ways)), reason),
            else_=DeviceRow.reason,
        )
    return values


def _is_leased() -> ColumnElement[bool]:
    return and_(DeviceRow.lease_owner.is_not(None), DeviceRow.lease_until >= db_now())


class DescribedDevice(TypedDict):
    """The columns that the agent describes the device in."""

    device_key: str
    target: Json
    info: Json
    device_model: str
    rpc_key: str
    by_gateway: NotRequired[bool]


class Devices(Repository):
    """Registration, heartbeats and leases of devices.

    Concurrency: a device is leased to at most one owner at a time; each lease raises its `fence`.
    Failure: an owner that dies keeps the device until `lease_until` (by the database's clock).
    """

    def register(
        self, *, name: str, ready: bool = True, reason: str = "", **described: Unpack[DescribedDevice]
    ) -> Device:
        """Add the device, or update the device of this name.

        Its new state is checking, or offline for `reason` if it is not `ready`. A device that
        is draining or quarantined stays so.
        """
        known = {"by_gateway": False, **described, "ready": False, "last_seen_at": db_now()}
        statement = self._insert(_DEVICES).values(
            id=new_id("dev"),
            name=name,
            state=DeviceState.OFFLINE,
            reason=reason,
            owner=acting().owner,
            **known,
        )
        statement = statement.on_conflict_do_update(
            index_elements=["name"],
            set_={**known, **transition(DeviceEvent.JOIN, reason or "it is not ready")},
        )
        device = self._first(Device, statement.returning(*columns()))
        assert device is not None
        DeviceHistory(self._connection).note(device, DeviceEvent.JOIN)
        return self.heartbeat(device.id, ready=ready, reason=reason)

    def get(self, device_id: str, *, removed: bool = False) -> Device:
        """Return a device, with `removed` also one that was removed. Raises `NotFoundError` if it does not exist."""
        query = select(*columns()).where(DeviceRow.id == device_id, *(() if removed else (_PRESENT,)))
        return self._required(Device, query, _not_found(device_id))

    def find(self, name: str) -> Device | None:
        """Return the device of this name, unless it was removed."""
        return self._first(Device, select(*columns()).where(DeviceRow.name == name, _PRESENT))

    def list(
        self,
        *,
        device_key: str | None = None,
        state: DeviceState | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Device]:
        """Return devices, oldest first; removed ones only if `state` asks for them."""
        query = select(*columns()).where(
            shown_state() == state if state is not None else _PRESENT,
            *equal(_DEVICES.c, device_key=device_key),
        )
        return self._page(Device, query, DeviceRow.id, cursor=cursor, limit=limit, newest_first=False)

    def keys(self) -> tuple[str, ...]:
        """Return every device key that has a device."""
        query = select(DeviceRow.device_key).where(_PRESENT).distinct().order_by(DeviceRow.device_key)
        return tuple(self._run(query).scalars())

    def in_pool(self, device_key: str) -> tuple[Device, ...]:
        """Return all devices of the pool, in any state."""
        query = select(*columns()).where(DeviceRow.device_key == device_key, _PRESENT)
        return self._all(Device, query.order_by(DeviceRow.id))

    def heartbeat(
        self, device_id: str, *, ready: bool = True, reason: str = "", info: Json | None = None
    ) -> Device:
        """Store a heartbeat.

        Args:
            device_id: The device.
            ready: Whether it can be measured on; a device that is not (its RPC server starts, or the gateway is away)
                is offline.
            reason: Why it is not ready.
            info: The changed members of its `info`.

        Raises:
            NotFoundError: ``device-not-found``: the agent must register again.
        """
        changes: dict[str, Any] = {"last_seen_at": db_now(), "ready": ready}
        if info is not None:
            changes["info"] = info
        if ready:
            changes |= transition(DeviceEvent.READY, FIRST_CHECK)
            came = DeviceRow.state == DeviceState.OFFLINE
            changes["calibrate_at"] = case((came, db_now()), else_=DeviceRow.calibrate_at)
        else:
            changes |= transition(DeviceEvent.UNREADY, reason or "it is not ready")
        return self._update(device_id, changes, DeviceEvent.READY if ready else DeviceEvent.UNREADY)

    def apply(
        self, device_id: str, event: DeviceEvent, reason: str = "", *, held: bool | None = None
    ) -> Device:
        """Apply an event to the device; `TRANSITIONS` says which state follows.

        Args:
            device_id: The device.
            event: The event.
            reason: Why it is in its new state.
            held: Whether it stays in quarantine until a person releases it; None leaves that as it is.

        Raises:
            NotFoundError: If there is no such device.
        """
        changes: dict[str, Any] = transition(event, reason)
        if held is not None:
            changes["held"] = held
        if event in (DeviceEvent.DOUBT, DeviceEvent.FAIL):
            changes["calibrate_at"] = db_now()
        if event is DeviceEvent.RELEASE:
            changes["calibration"] = None  # a calibration before this one is no longer its reference
        if event is DeviceEvent.REMOVE:
            # A worker that measures on it learns this at its next renewal.
            changes |= {"lease_owner": None, "lease_until": None, "calibration": None, "held": False}
        return self._update(device_id, changes, event)

    def mark_stale(self, after_sec: float) -> tuple[Device, ...]:
        """Mark devices without a heartbeat for `after_sec` as not ready, and those that took part as offline.

        Returns:
            The devices that changed.
        """
        statement = (
            update(_DEVICES)
            .where(
                or_(DeviceRow.ready.is_(True), DeviceRow.state.in_(list(TRANSITIONS[DeviceEvent.SILENT]))),
                _PRESENT,
                DeviceRow.last_seen_at < db_now() - after_sec,
            )
            .values(ready=False, **transition(DeviceEvent.SILENT, f"no heartbeat for {after_sec:g} s"))
        )
        stale = self._all(Device, statement.returning(*columns()))
        for device in stale:
            DeviceHistory(self._connection).note(device, DeviceEvent.SILENT)
        return stale

    def lease(self, device_key: str, owner: str, lease_sec: float) -> DeviceLease | None:
        """Lease a free, online device of the pool for `lease_sec`, under a new fence; None if none is free."""
        free = (
            holders()
            .where(
                DeviceRow.device_key == device_key,
                DeviceRow.state == DeviceState.ONLINE,
                or_(DeviceRow.lease_until.is_(None), DeviceRow.lease_until < db_now()),
            )
            .order_by(DeviceRow.fence, DeviceRow.id)  # the least used device first
            .limit(1)
            .with_for_update(
                skip_locked=True
            )  # not rendered for SQLite, where BEGIN IMMEDIATE has locked the database
        )
        return self.take(free, owner, lease_sec)

    def take(
        self, query: Select[str, str | None, float | None, float | None], owner: str, lease_sec: float
    ) -> DeviceLease | None:
        """Lease the device that a query of `holders` returns and locks, under a new fence; None if it returns none.

        If its last holder never released it, that lease's time is counted here.
        """
        before = self._run(query).first()
        if before is None:
            return None
        device_id, left_by, leased_at, lease_until = before
        if left_by is not None:
            self.count_use(device_id, left_by, leased_at, lease_until)
        statement = (
            update(_DEVICES)
            .where(DeviceRow.id == device_id)
            .values(
                lease_owner=owner,
                leased_at=db_now(),
                lease_until=db_now() + lease_sec,
                fence=DeviceRow.fence + 1,
            )
        )
        device = self._first(Device, statement.returning(*columns()))
        assert device is not None
        assert device.lease_until is not None
        return DeviceLease(device=device, owner=owner, fence=device.fence, lease_until=device.lease_until)

    def count_use(self, device_id: str, owner: str, began_at: float | None, until: float) -> None:
        """Count a lease that has ended."""
        kind = "calibration_sec" if is_calibration(owner) else "work_sec"
        DeviceSlots(self._connection).use(device_id, began_at, until, **{kind: 1.0})

    def renew_lease(self, device_id: str, fence: int, lease_sec: float) -> bool:
        """Extend the lease to `lease_sec` from now; return False if another holder has the device."""
        statement = (
            update(_DEVICES).where(held_under(device_id, fence)).values(lease_until=db_now() + lease_sec)
        )
        return self._run(statement).rowcount == 1

    def release_lease(self, device_id: str, fence: int) -> bool:
        """Release the device; return False, and change nothing, if another holder has it."""
        statement = (
            update(_DEVICES)
            .where(held_under(device_id, fence))
            .values(lease_owner=None, lease_until=None)
            .returning(DeviceRow.leased_at, db_now())
        )
        held = self._run(statement).first()
        if held is None:
            return False
        self.count_use(device_id, "", *held)
        return True

    def counts(self, device_key: str) -> PoolCounts:
        """Return how many devices of the pool are in each state; all zero if the pool is unknown."""
        state = shown_state().label("shown")
        query = (
            select(state, func.count()).where(DeviceRow.device_key == device_key, _PRESENT).group_by(state)
        )
        return PoolCounts({row[0]: row[1] for row in self._run(query)})

    def _update(self, device_id: str, changes: dict[str, Any], event: DeviceEvent) -> Device:
        state_changed = (DeviceRow.state_since >= db_now()).label("state_changed")
        statement = update(_DEVICES).where(DeviceRow.id == device_id, _PRESENT).values(changes)
        row = self._run(statement.returning(*columns(), state_changed)).mappings().first()
        if row is None:
            raise _not_found(device_id)
        values = dict(row)
        is_news = values.pop("state_changed") or event not in (DeviceEvent.READY, DeviceEvent.UNREADY)
        device = Device(**values)
        if is_news:  # most heartbeats change no column
            DeviceHistory(self._connection).note(device, event)
        return device


_PRESENT = DeviceRow.state != DeviceState.REMOVED


def holders() -> Select[str, str | None, float | None, float | None]:
    """Return the columns that `Devices.take` reads of a device."""
    return select(DeviceRow.id, DeviceRow.lease_owner, DeviceRow.leased_at, DeviceRow.lease_until)


def is_calibration(owner: str | None) -> bool:
    """Return whether the owner of a lease is a calibration."""
    return owner is not None and owner.startswith(CALIBRATION)


def held_under(device_id: str, fence: int) -> ColumnElement[bool]:
    """Return whether a row is the device, held under this fence."""
    return and_(DeviceRow.id == device_id, DeviceRow.fence == fence, DeviceRow.lease_owner.is_not(None))


def _not_found(device_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no such device: {clean(device_id, 60)}", code="device-not-found", device_id=device_id
    )
