"""Values mirror tables: the test names a column that only one of the two has."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tunefarm_db import tables, values
from tunefarm_db.repositories.jobs.job_tasks import JobTaskChanges
from tunefarm_db.repositories.jobs.jobs import JobChanges
from tunefarm_db.tables import Base, table_of

_WITHOUT_VALUE = {"counters", "device_slots", "reserved_bytes"}
"""Tables that are only ever summed up."""

_HIDDEN: dict[type[Base], set[str]] = {
    tables.DeviceRow: {"tracker_host", "tracker_port"},  # of farms before gateways
    tables.ModelRow: {"shapes_key"},
    tables.ModelTaskRow: {"revision"},
    tables.SpaceRow: {"created_at"},
    tables.WorkloadRow: {"created_at"},
}
"""Columns that queries or earlier releases use and no value shows."""

_JOINED: dict[type[Any], set[str]] = {
    values.DevicePeak: {"device_name", "device_key", "device_model"},
    values.ModelTask: {"name", "flops", "args"},
}
"""Fields that come from another table."""

MIRRORS: list[tuple[type[Base], type[Any]]] = [
    (tables.ApiKeyRow, values.ApiKey),
    (tables.ArtifactRow, values.Artifact),
    (tables.AuditInboxRow, values.NotedEntry),
    (tables.AuditLogRow, values.AuditEntry),
    (tables.BlobRow, values.Blob),
    (tables.CalibrationRow, values.Calibration),
    (tables.DeviceChangeRow, values.DeviceChange),
    (tables.DevicePeakRow, values.DevicePeak),
    (tables.DeviceRow, values.Device),
    (tables.DraftRow, values.Draft),
    (tables.EventRow, values.Event),
    (tables.FindingRow, values.Finding),
    (tables.JobRow, values.Job),
    (tables.JobTaskRow, values.JobTask),
    (tables.ModelRow, values.Model),
    (tables.ModelTaskRow, values.ModelTask),
    (tables.NetworkTimingRow, values.NetworkTiming),
    (tables.RecordRow, values.Record),
    (tables.SourceRow, values.Source),
    (tables.SpaceRow, values.Space),
    (tables.StepRow, values.Step),
    (tables.SweepCellRow, values.SweepCell),
    (tables.SweepRow, values.Sweep),
    (tables.TraceRow, values.Trace),
    (tables.TrialRow, values.Trial),
    (tables.QuantisedModelRow, values.QuantisedModel),
    (tables.SampleFileRow, values.SampleFile),
    (tables.UploadRow, values.Upload),
    (tables.WebhookDeliveryRow, values.Delivery),
    (tables.WebhookRow, values.Webhook),
    (tables.WorkloadRow, values.Workload),
]


def test_every_table_has_a_value() -> None:
    assert {row.__tablename__ for row, _ in MIRRORS} == set(Base.metadata.tables) - _WITHOUT_VALUE


@pytest.mark.parametrize(("row", "value"), MIRRORS, ids=[value.__name__ for _, value in MIRRORS])
def test_a_value_has_the_columns_of_its_table(row: type[Base], value: type[Any]) -> None:
    columns = set(table_of(row).columns.keys()) - _HIDDEN.get(row, set())
    assert {field.name for field in fields(value)} - _JOINED.get(value, set()) == columns


@pytest.mark.parametrize(
    ("row", "changes"), [(tables.JobRow, JobChanges), (tables.JobTaskRow, JobTaskChanges)]
)
def test_what_an_update_changes_are_columns(row: type[Base], changes: type[Any]) -> None:
    assert set(changes.__annotations__) <= set(table_of(row).columns.keys())
