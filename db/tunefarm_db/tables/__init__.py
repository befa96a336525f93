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
from tunefarm_db.tables.farm import ApiKeyRow, CounterRow
from tunefarm_db.tables.jobs import (
    ArtifactRow,
    EventRow,
    JobRow,
    JobTaskRow,
    StepRow,
    SweepCellRow,
    SweepRow,
    TraceRow,
    TrialRow,
)
from tunefarm_db.tables.models import BlobRow, ModelRow, ModelTaskRow, SampleFileRow, UploadRow
from tunefarm_db.tables.records import FindingRow, RecordRow, SourceRow, SpaceRow, WorkloadRow
from tunefarm_db.tables.webhooks import WebhookDeliveryRow, WebhookRow

__all__ = [
    "ApiKeyRow",
    "ArtifactRow",
    "Base",
    "BlobRow",
    "CalibrationRow",
    "CounterRow",
    "DeviceChangeRow",
    "DevicePeakRow",
    "DeviceRow",
    "DeviceSlotRow",
    "EventRow",
    "FindingRow",
    "JobRow",
    "JobTaskRow",
    "ModelRow",
    "ModelTaskRow",
    "RecordRow",
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
