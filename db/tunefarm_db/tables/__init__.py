"""The tables. Rows never leave this package: repositories return `tunefarm_db.values`.

No relationships: every query is written out in a repository, so none can hide in an attribute access.
"""

from __future__ import annotations

from tunefarm_db.tables.base import Base, table_of
from tunefarm_db.tables.devices import (
    CalibrationRow,
    DeviceChangeRow,
    DevicePeakRow,
    DeviceRow,
    DeviceSlotRow,
)
from tunefarm_db.tables.farm import ApiKeyRow, AuditInboxRow, AuditLogRow, CounterRow, ReservedBytesRow
from tunefarm_db.tables.jobs import (
    ArtifactRow,
    DraftRow,
    EventRow,
    JobRow,
    JobTaskRow,
    NetworkTimingRow,
    StepRow,
    SweepCellRow,
    SweepRow,
    TraceRow,
    TrialRow,
)
from tunefarm_db.tables.models import (
    BlobRow,
    ModelRow,
    ModelTaskRow,
    QuantisedModelRow,
    SampleFileRow,
    UploadRow,
)
from tunefarm_db.tables.records import FindingRow, RecordRow, SourceRow, SpaceRow, WorkloadRow
from tunefarm_db.tables.webhooks import WebhookDeliveryRow, WebhookRow

__all__ = [
    "ApiKeyRow",
    "ArtifactRow",
    "AuditInboxRow",
    "AuditLogRow",
    "Base",
    "BlobRow",
    "CalibrationRow",
    "CounterRow",
    "DeviceChangeRow",
    "DevicePeakRow",
    "DeviceRow",
    "DeviceSlotRow",
    "DraftRow",
    "EventRow",
    "FindingRow",
    "JobRow",
    "JobTaskRow",
    "ModelRow",
    "ModelTaskRow",
    "NetworkTimingRow",
    "QuantisedModelRow",
    "RecordRow",
    "ReservedBytesRow",
    "SampleFileRow",
    "SourceRow",
    "SpaceRow",
    "StepRow",
    "SweepCellRow",
    "SweepRow",
    "TraceRow",
    "TrialRow",
    "UploadRow",
    "WebhookDeliveryRow",
    "WebhookRow",
    "WorkloadRow",
    "table_of",
]
