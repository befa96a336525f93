"""The unit of work: a transaction with repositories, committed at its end."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tunefarm_db.repositories.base import is_of_data
from tunefarm_db.repositories.devices.calibrations import Calibrations
from tunefarm_db.repositories.devices.devices import Devices
from tunefarm_db.repositories.devices.history import DeviceHistory
from tunefarm_db.repositories.devices.peaks import Peaks
from tunefarm_db.repositories.devices.slots import DeviceSlots
from tunefarm_db.repositories.farm.api_keys import ApiKeys
from tunefarm_db.repositories.farm.audit import Audit
from tunefarm_db.repositories.farm.counters import Counters
from tunefarm_db.repositories.farm.overview import Overview
from tunefarm_db.repositories.farm.references import References
from tunefarm_db.repositories.farm.retention import Retention
from tunefarm_db.repositories.farm.statistics import Statistics
from tunefarm_db.repositories.farm.usage import Usage
from tunefarm_db.repositories.jobs.artifacts import Artifacts, Drafts
from tunefarm_db.repositories.jobs.events import Events
from tunefarm_db.repositories.jobs.jobs import Jobs
from tunefarm_db.repositories.jobs.network_timings import NetworkTimings
from tunefarm_db.repositories.jobs.steps import Steps
from tunefarm_db.repositories.jobs.sweeps import Sweeps
from tunefarm_db.repositories.jobs.traces import Traces
from tunefarm_db.repositories.jobs.trials import Trials
from tunefarm_db.repositories.jobs.turns import Turns
from tunefarm_db.repositories.models.blobs import Blobs
from tunefarm_db.repositories.models.models import Models
from tunefarm_db.repositories.models.quantised import QuantisedModels
from tunefarm_db.repositories.models.samples import SampleFiles
from tunefarm_db.repositories.models.uploads import Uploads
from tunefarm_db.repositories.records.findings import Findings
from tunefarm_db.repositories.records.purges import Purges
from tunefarm_db.repositories.records.records import Records
from tunefarm_db.repositories.records.searches import Searches
from tunefarm_db.repositories.records.sources import Sources
from tunefarm_db.repositories.records.transfer import Transfer
from tunefarm_db.repositories.records.workloads import Spaces, Workloads
from tunefarm_db.repositories.webhooks.deliveries import Deliveries
from tunefarm_db.repositories.webhooks.webhooks import Webhooks
from tunefarm_db.tables.columns import db_now
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TransientError, TunefarmError


class Repositories:
    """The repositories of one unit of work."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.blobs = Blobs(connection)
        self.models = Models(connection)
        self.samples = SampleFiles(connection)
        self.quantised = QuantisedModels(connection)
        self.workloads = Workloads(connection)
        self.jobs = Jobs(connection)
        self.steps = Steps(connection)
        self.sweeps = Sweeps(connection)
        self.turns = Turns(connection)
        self.traces = Traces(connection)
        self.trials = Trials(connection)
        self.records = Records(connection)
        self.findings = Findings(connection)
        self.purges = Purges(connection)
        self.spaces = Spaces(connection)
        self.sources = Sources(connection)
        self.transfer = Transfer(connection)
        self.devices = Devices(connection)
        self.device_history = DeviceHistory(connection)
        self.device_slots = DeviceSlots(connection)
        self.calibrations = Calibrations(connection)
        self.peaks = Peaks(connection)
        self.api_keys = ApiKeys(connection)
        self.audit = Audit(connection)
        self.usage = Usage(connection)
        self.references = References(connection)
        self.events = Events(connection)
        self.webhooks = Webhooks(connection)
        self.deliveries = Deliveries(connection)
        self.artifacts = Artifacts(connection)
        self.drafts = Drafts(connection)
        self.network_timings = NetworkTimings(connection)
        self.counters = Counters(connection)
        self.overview = Overview(connection)
        self.searches = Searches(connection)
        self.retention = Retention(connection)
        self.statistics = Statistics(connection)
        self.uploads = Uploads(connection)

    def now(self) -> float:
        """Return the database's clock, Unix seconds."""
        return float(self._connection.execute(select(db_now())).scalar_one())

    def probe_write(self) -> None:
        """Check that this unit of work could write, without writing.

        Raises:
            TransientError: ``database-read-only`` on a stand-by. (SQLite said so when the unit of work began.)
        """
        if self._connection.dialect.name == "postgresql":
            query = text("SELECT current_setting('transaction_read_only')")
            if self._connection.execute(query).scalar_one() == "on":
                raise TransientError("the database takes no writes now", code="database-read-only")

    def could_write(self) -> bool:
        """Return whether a unit of work could write, as far as that can be told by reading: not while the disk is full, for example."""
        if self._connection.dialect.name == "postgresql":
            query = text(
                "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'"
            )
            return not self._connection.execute(query).scalar_one()
        path = self._connection.engine.url.database
        return path in (None, "", ":memory:") or os.access(path, os.W_OK)


class UnitOfWork:
    """Opens transactions. One per process; any number of threads may use it.

    Never hold one open across slow work (a measurement, a compile, an upload): on SQLite there is one writer.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @contextmanager
    def write(self) -> Iterator[Repositories]:
        """Open a transaction that writes: committed at the end of the block, rolled back by any exception.

        Raises:
            ConflictError: If a uniqueness or reference rule of the schema forbids what was written. It is raised
                at the end of the block: by then the transaction can only be rolled back.
            InvalidInputError: If a value cannot be stored (a NUL in a text, a number out of range, a text too long for an index).
            TransientError: If the database is away, was locked for too long, or has no room (``database-full``).
        """
        with self._transaction(read_only=False) as repositories:
            yield repositories

    @contextmanager
    def read(self) -> Iterator[Repositories]:
        """Open a transaction that only reads; the database refuses writes in it.

        Raises:
            TransientError: As `write`.
        """
        with self._transaction(read_only=True) as repositories:
            yield repositories

    @contextmanager
    def _transaction(self, *, read_only: bool) -> Iterator[Repositories]:
        try:
            with self.engine.connect() as connection:
                connection = connection.execution_options(
                    tunefarm_read_only=read_only, postgresql_readonly=read_only
                )
                with connection.begin():
                    yield Repositories(connection)
        except (DBAPIError, PoolTimeoutError) as error:
            raise translated(error) from error


def translated(error: DBAPIError | PoolTimeoutError) -> TunefarmError | DBAPIError | PoolTimeoutError:
    """Return our error for an error of the driver. An error that is a bug of ours is returned unchanged."""
    # A message never has the statement's parameters: they can contain users' data.
    if isinstance(error, IntegrityError):
        return ConflictError(f"the database refused it: {_first_line(error)}", code="conflict")
    if isinstance(error, DBAPIError) and is_of_data(error):
        return InvalidInputError("a value cannot be stored in the database", code="invalid-value")
    if isinstance(error, OperationalError) and _is_full(error.orig):
        return TransientError("the disk of the database is full", code="database-full")
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    if lost or isinstance(error, OperationalError | InterfaceError | PoolTimeoutError):
        return TransientError(
            f"the database is not available: {_first_line(error)}", code="database-unavailable"
        )
    return error


def _is_full(error: BaseException | None) -> bool:
    """Return whether the error says that the disk is full: SQLite's ``SQLITE_FULL``, PostgreSQL's ``disk_full``."""
    sqlite = (
        isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    )
    return sqlite or getattr(error, "sqlstate", None) == "53100"


def _first_line(error: DBAPIError | PoolTimeoutError) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    lines = str(cause).splitlines()
    return lines[0] if lines else type(cause).__name__
