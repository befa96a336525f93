"""The frozen values that repositories return. Rows never leave this package.

A value's fields are columns: `repositories.base` fills a field from the column of its name, and fails where there is
none. So a new column takes a migration, one line in the table (`tunefarm_db.tables`) and one line in the value.
`tests/unit/db/test_values.py` fails for a column that no value has, and `tests/contract/db/test_schema.py` for a
column without a migration.

A field that ends in ``_at``, ``_until`` or ``not_before`` is Unix time in seconds by the database's clock
(``measured_at`` alone is the device's clock). A field typed `Json` holds a JSON object.
"""

from __future__ import annotations

from tunefarm_db.states.device import UP_STATES, DeviceState
from tunefarm_db.values.base import Json, Page
from tunefarm_db.values.devices import (
    Calibration,
    CalibrationOutcome,
    Device,
    DeviceChange,
    DeviceInterval,
    DeviceLease,
    DevicePeak,
    MeasuredHere,
    NewCalibration,
    PoolCounts,
)
from tunefarm_db.values.farm import ApiKey, AuditAction, AuditEntry, NotedEntry, WaitingEntries
from tunefarm_db.values.job_results import (
    Artifact,
    Draft,
    Event,
    NetworkTiming,
    NewTrial,
    Trace,
    Trial,
)
from tunefarm_db.values.jobs import Job, JobTask, NewSweepCell, Sweep, SweepCell, TaskCounts
from tunefarm_db.values.models import (
    BINDING_CODES,
    Blob,
    Model,
    ModelState,
    ModelTask,
    QuantisedModel,
    SampleFile,
    SampleState,
    Upload,
    UploadState,
)
from tunefarm_db.values.records import Finding, NewRecord, Record, Source, SourceState, Space, Workload
from tunefarm_db.values.steps import Step, StepKind, StepState
from tunefarm_db.values.webhooks import (
    BY_A_PERSON,
    WEBHOOK_STATES,
    ClaimedDelivery,
    Delivery,
    DeliveryState,
    Webhook,
    WebhookHead,
    WebhookHealth,
)

__all__ = [
    "BINDING_CODES",
    "BY_A_PERSON",
    "UP_STATES",
    "WEBHOOK_STATES",
    "ApiKey",
    "Artifact",
    "AuditAction",
    "AuditEntry",
    "Blob",
    "Calibration",
    "CalibrationOutcome",
    "ClaimedDelivery",
    "Delivery",
    "DeliveryState",
    "Device",
    "DeviceChange",
    "DeviceInterval",
    "DeviceLease",
    "DevicePeak",
    "DeviceState",
    "Draft",
    "Event",
    "Finding",
    "Job",
    "JobTask",
    "Json",
    "MeasuredHere",
    "Model",
    "ModelState",
    "ModelTask",
    "NetworkTiming",
    "NewCalibration",
    "NewRecord",
    "NewSweepCell",
    "NewTrial",
    "NotedEntry",
    "Page",
    "PoolCounts",
    "QuantisedModel",
    "Record",
    "SampleFile",
    "SampleState",
    "Source",
    "SourceState",
    "Space",
    "Step",
    "StepKind",
    "StepState",
    "Sweep",
    "SweepCell",
    "TaskCounts",
    "Trace",
    "Trial",
    "Upload",
    "UploadState",
    "WaitingEntries",
    "Webhook",
    "WebhookHead",
    "WebhookHealth",
    "Workload",
]
