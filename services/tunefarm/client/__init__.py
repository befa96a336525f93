"""The Python client: talks to a tunefarm server over HTTP. It imports no other part of the farm.

A `client` has an object for each kind of thing: `models` (large files by `uploads`), `samples`, `jobs` (what is read of one: `job_results`;
one to wait for: `handle`), `sweeps`, `records`, `devices`, `keys`, `signing`, `webhooks`, `audit`. Their methods take `job_terms` and
`filters` as `keywords`, send requests by `http`, and return `results` or raise `errors`.
"""

from __future__ import annotations

from tunefarm.client.audit import AuditBreak, AuditCheck, AuditEntry
from tunefarm.client.client import AsyncClient, Client, FarmCheck, FarmChecks
from tunefarm.client.errors import (
    AuthenticationError,
    ClientError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    JobCancelledError,
    JobFailedError,
    ModelFailedError,
    NotFoundError,
    ProtocolError,
    ServerError,
    UnavailableError,
    WaitTimeoutError,
)
from tunefarm.client.handle import AsyncJobHandle, Download, JobHandle
from tunefarm.client.http.paging import Page
from tunefarm.client.http.retry import NO_RETRY, RetryPolicy
from tunefarm.client.keys import ApiKey, KeyLimits, NewApiKey, SignInLink
from tunefarm.client.results.artifacts import Draft, Measurement, Measurements, Speedup, TimedNetwork
from tunefarm.client.results.comparison import ComparedJob, ComparedKernel, JobComparison
from tunefarm.client.results.devices import (
    Device,
    DeviceCalibration,
    DeviceChange,
    DeviceInterval,
    DevicePeak,
    DeviceRecord,
    DeviceTotals,
    EnrolmentToken,
    PurgedRecords,
)
from tunefarm.client.results.jobs import (
    Event,
    Job,
    JobTask,
    Record,
    RecordImport,
    Roofline,
    Trial,
)
from tunefarm.client.results.models import Model, ModelTask, SampleFile, Tensor, WorkloadCode
from tunefarm.client.results.shown import ReportPage
from tunefarm.client.results.sweeps import Sweep, SweepCell
from tunefarm.client.signing import SigningKey
from tunefarm.client.webhooks import NewWebhook, Webhook, WebhookDelivery

__all__ = [
    "NO_RETRY",
    "ApiKey",
    "AsyncClient",
    "AsyncJobHandle",
    "AuditBreak",
    "AuditCheck",
    "AuditEntry",
    "AuthenticationError",
    "Client",
    "ClientError",
    "ComparedJob",
    "ComparedKernel",
    "ConflictError",
    "Device",
    "DeviceCalibration",
    "DeviceChange",
    "DeviceInterval",
    "DevicePeak",
    "DeviceRecord",
    "DeviceTotals",
    "Download",
    "Draft",
    "EnrolmentToken",
    "Event",
    "FarmCheck",
    "FarmChecks",
    "ForbiddenError",
    "InvalidRequestError",
    "Job",
    "JobCancelledError",
    "JobComparison",
    "JobFailedError",
    "JobHandle",
    "JobTask",
    "KeyLimits",
    "Measurement",
    "Measurements",
    "Model",
    "ModelFailedError",
    "ModelTask",
    "NewApiKey",
    "NewWebhook",
    "NotFoundError",
    "Page",
    "ProtocolError",
    "PurgedRecords",
    "Record",
    "RecordImport",
    "ReportPage",
    "RetryPolicy",
    "Roofline",
    "SampleFile",
    "ServerError",
    "SignInLink",
    "SigningKey",
    "Speedup",
    "Sweep",
    "SweepCell",
    "Tensor",
    "TimedNetwork",
    "Trial",
    "UnavailableError",
    "WaitTimeoutError",
    "Webhook",
    "WebhookDelivery",
    "WorkloadCode",
]
