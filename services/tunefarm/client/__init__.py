"""The Python client: talks to a tunefarm server over HTTP, and imports nothing of the farm."""

from __future__ import annotations

from tunefarm.client.async_client import AsyncClient
from tunefarm.client.checks import FarmCheck, FarmChecks
from tunefarm.client.client import Client
from tunefarm.client.device_past import (
    DeviceCalibration,
    DeviceChange,
    DeviceInterval,
    DeviceRecord,
    DeviceTotals,
)
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
from tunefarm.client.http.retry import NO_RETRY, RetryPolicy
from tunefarm.client.keys import ApiKey, NewApiKey, SignInLink
from tunefarm.client.results.devices import Device, EnrolmentToken
from tunefarm.client.results.jobs import (
    Event,
    Job,
    JobTask,
    Model,
    ModelTask,
    Page,
    Record,
    Tensor,
    Trial,
)
from tunefarm.client.results.peaks import DevicePeak, Roofline
from tunefarm.client.results.report_page import ReportPage
from tunefarm.client.webhooks import NewWebhook, Webhook, WebhookDelivery

__all__ = [
    "NO_RETRY",
    "ApiKey",
    "AsyncClient",
    "AsyncJobHandle",
    "AuthenticationError",
    "Client",
    "ClientError",
    "ConflictError",
    "Device",
    "DeviceCalibration",
    "DeviceChange",
    "DeviceInterval",
    "DevicePeak",
    "DeviceRecord",
    "DeviceTotals",
    "Download",
    "EnrolmentToken",
    "Event",
    "FarmCheck",
    "FarmChecks",
    "ForbiddenError",
    "InvalidRequestError",
    "Job",
    "JobCancelledError",
    "JobFailedError",
    "JobHandle",
    "JobTask",
    "Model",
    "ModelFailedError",
    "ModelTask",
    "NewApiKey",
    "NewWebhook",
    "NotFoundError",
    "Page",
    "ProtocolError",
    "Record",
    "ReportPage",
    "RetryPolicy",
    "Roofline",
    "ServerError",
    "SignInLink",
    "Tensor",
    "Trial",
    "UnavailableError",
    "WaitTimeoutError",
    "Webhook",
    "WebhookDelivery",
]
