"""The copies of a field agree: database value, API schema, client result; and those of a job's terms.

Each copy is one line, and this test says which is missing: `docs/adr` on adding a field. A field that is left out on purpose
is listed here.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any

import pytest
from pydantic import BaseModel

from tunefarm import client
from tunefarm.cli.base.options import TermOptions
from tunefarm.client.client import FarmCheck, FarmChecks
from tunefarm.client.job_terms import JobTerms
from tunefarm.client.results.jobs import Progress
from tunefarm.client.results.models import Problem
from tunefarm.client.results.reading import Result
from tunefarm_api.schemas import (
    api_key,
    audit,
    device,
    device_history,
    health,
    job,
    model,
    peak,
    problem,
    record,
    samples,
    signing,
    webhook,
)
from tunefarm_app.access import quotas
from tunefarm_app.jobs import terms as app_terms
from tunefarm_app.records import importing
from tunefarm_app.report import comparison as report_comparison
from tunefarm_app.report import sweeps as report_sweeps
from tunefarm_app.report.sections import ReportMeasurement, ReportNetwork, ReportRatio
from tunefarm_db import values
from tunefarm_db.repositories.records import purges
from tunefarm_text.job_terms import API_LIMITS, HELP, LABELS
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.search.budget import Budget


@dataclass(frozen=True, kw_only=True)
class Copies:
    """A schema of the API, and its neighbours.

    Attributes:
        schema: What the API sends.
        result: What the client reads of it; the fields `in_raw` are in `raw` alone.
        worked_out: Fields of the client that it works out of others.
        value: The database's value; None where there is not one alone.
        not_sent: Its fields that are nobody's outside.
        added: Fields of the schema that come from elsewhere.
    """

    schema: type[BaseModel]
    result: type[Result]
    in_raw: str = ""
    worked_out: str = ""
    value: Any = None
    not_sent: str = ""
    added: str = ""


COPIES = (
    Copies(
        schema=job.Job,
        result=client.Job,
        in_raw="event_seq options started_tuning_at target trials_since_improvement updated_at",
        value=values.Job,
        not_sent="counted_until idempotency_key over_runtime over_untuned request_digest turn_sec",
        added="draft eta_sec model_name networks waiting",
    ),
    Copies(schema=job.Draft, result=client.Draft, value=values.Draft, not_sent="envelope job_id"),
    Copies(schema=audit.AuditEntry, result=client.AuditEntry, value=values.AuditEntry),
    Copies(schema=audit.AuditCheck, result=client.AuditCheck),
    Copies(schema=audit.AuditBreak, result=client.AuditBreak),
    Copies(schema=signing.SigningKey, result=client.SigningKey),
    Copies(schema=ReportRatio, result=client.Speedup),
    Copies(schema=ReportMeasurement, result=client.Measurement),
    Copies(
        schema=ReportNetwork,
        result=client.TimedNetwork,
        value=values.NetworkTiming,
        not_sent="began_sec costs created_at device_id envelope error expected_sec inputs_sha256 job_id name not_before sha256 size_bytes "
        "spent_sec tries",
    ),
    Copies(schema=job.Measurements, result=client.Measurements),
    Copies(schema=job.Progress, result=Progress, in_raw="budget"),
    Copies(
        schema=job.JobTask,
        result=client.JobTask,
        in_raw="alternative confirmations exhausted history rounds",
        value=values.JobTask,
        not_sent="job_id space_key toolchain",
        added="counts disturbed flops outcomes roofline share",
    ),
    Copies(
        schema=job.Trial,
        result=client.Trial,
        in_raw="asked_key build_sec config_key id ordinal record_id run_sec",
        value=values.Trial,
        not_sent="job_id",
    ),
    Copies(schema=job.Event, result=client.Event, value=values.Event, not_sent="job_id"),
    Copies(
        schema=record.Record,
        result=client.Record,
        in_raw="build_sec config confirmed created_at device_id extra id job_id message samples_sec space_key superseded",
        value=values.Record,
        added="args kernel",
        not_sent="size_bytes",
    ),
    Copies(schema=report_sweeps.SweepReport, result=client.Sweep),
    Copies(schema=report_sweeps.ReportedCell, result=client.SweepCell),
    Copies(schema=record.RecordImport, result=client.RecordImport, value=importing.RecordImport),
    Copies(schema=model.WorkloadCode, result=client.WorkloadCode, value=values.Workload),
    Copies(
        schema=model.Model,
        result=client.Model,
        in_raw="updated_at",
        value=values.Model,
        not_sent="revision",
        added="waiting",
    ),
    Copies(
        schema=model.ModelTask,
        result=client.ModelTask,
        in_raw="toolchain",
        value=values.ModelTask,
        not_sent="alternative model_id",
    ),
    Copies(
        schema=samples.SampleFile,
        result=client.SampleFile,
        in_raw="updated_at",
        value=values.SampleFile,
    ),
    Copies(schema=model.Tensor, result=client.Tensor),
    Copies(
        schema=device.Device,
        result=client.Device,
        in_raw="by_gateway calibrate_at calibration created_at credential fence held info ready step_id target",
        worked_out="calibration_sec credential_until sandbox temperature_celsius",
        value=values.Device,
        not_sent="rpc_key",
        added="credential job_id peak step_id work",
    ),
    Copies(schema=device.EnrolmentToken, result=client.EnrolmentToken),
    Copies(
        schema=record.PurgedRecords, result=client.PurgedRecords, value=purges.Purged, not_sent="shown_by"
    ),
    Copies(
        schema=peak.DevicePeak,
        result=client.DevicePeak,
        in_raw="bandwidth key runs",
        worked_out="memory_bytes_per_sec",
    ),
    Copies(schema=peak.Roofline, result=client.Roofline, in_raw="intensity"),
    Copies(schema=device_history.DeviceInterval, result=client.DeviceInterval, value=values.DeviceInterval),
    Copies(schema=device_history.DeviceTotals, result=client.DeviceTotals),
    Copies(
        schema=device_history.DeviceCalibration,
        result=client.DeviceCalibration,
        in_raw="all_cores_reference_sec key",
        value=values.Calibration,
        not_sent="device_id",
        added="limit_sec",
    ),
    Copies(
        schema=device_history.DeviceChange,
        result=client.DeviceChange,
        value=values.DeviceChange,
        not_sent="device_id",
    ),
    Copies(schema=device_history.DeviceRecord, result=client.DeviceRecord, in_raw="confirmed"),
    Copies(
        schema=webhook.Webhook,
        result=client.Webhook,
        value=values.Webhook,
        not_sent="owner secret",
    ),
    Copies(
        schema=webhook.WebhookDelivery,
        result=client.WebhookDelivery,
        in_raw="not_before",
        value=values.Delivery,
        not_sent="lease_until webhook_id",
    ),
    Copies(
        schema=api_key.ApiKey,
        result=client.ApiKey,
        in_raw="device_key device_name",
        value=values.ApiKey,
        not_sent="secret_sha256 unrotated_end",
    ),
    Copies(schema=api_key.KeyLimits, result=client.KeyLimits, value=quotas.KeyLimits),
    Copies(schema=problem.StoredError, result=Problem, in_raw="kind"),
    Copies(schema=report_comparison.JobComparison, result=client.JobComparison),
    Copies(schema=report_comparison.ComparedJob, result=client.ComparedJob),
    Copies(schema=report_comparison.ComparedKernel, result=client.ComparedKernel),
    Copies(schema=health.Checks, result=FarmChecks),
    Copies(schema=health.Check, result=FarmCheck),
)


@pytest.mark.parametrize("copies", COPIES, ids=lambda copies: copies.schema.__name__)
def test_the_client_reads_what_the_api_sends(copies: Copies) -> None:
    sent = set(copies.schema.model_fields)
    read = {field.name for field in fields(copies.result)} - {"raw"}  # type: ignore[arg-type]
    assert read - set(copies.worked_out.split()) == sent - set(copies.in_raw.split())


@pytest.mark.parametrize(
    "copies", [copies for copies in COPIES if copies.value], ids=lambda copies: copies.schema.__name__
)
def test_the_api_sends_what_the_database_holds(copies: Copies) -> None:
    held = {field.name for field in fields(copies.value)}
    assert held - set(copies.not_sent.split()) == set(copies.schema.model_fields) - set(copies.added.split())


def test_no_result_of_the_client_is_left_out() -> None:
    compared = {copies.result for copies in COPIES}
    public = {
        kind
        for name in client.__all__
        if inspect.isclass(kind := getattr(client, name)) and issubclass(kind, Result)
    }
    client_only = {
        client.NewApiKey,
        client.NewWebhook,
        client.SignInLink,
    }  # a copy with its secret; a link put together
    assert public - compared == client_only


def test_a_record_keeps_its_fields_on_the_way_to_the_client() -> None:
    of_the_workload = {"kernel", "shapes"}
    measured = {field.name for field in fields(TuningRecord)} - of_the_workload
    assert measured <= {field.name for field in fields(values.NewRecord)}
    assert measured <= set(record.Record.model_fields)


def test_an_example_of_the_api_is_read_whole() -> None:
    example = job.Job.model_config["json_schema_extra"]["examples"][0]  # type: ignore[index, call-overload]
    read = client.Job.read(example)
    assert read.eta_sec == example["eta_sec"]
    assert {name: getattr(read, name) for name in example if hasattr(read, name) and name != "progress"} == {
        name: value for name, value in example.items() if hasattr(read, name) and name != "progress"
    }
    older = {name: value for name, value in example.items() if name != "eta_sec"}
    assert client.Job.read(older).eta_sec is None


def test_every_term_is_everywhere() -> None:
    assert set(JobTerms.__annotations__) == {*HELP, "options"}
    # `tunefarm compile` is the command of a job without a search, and `--quick` another word for a minute.
    assert {field.name for field in fields(TermOptions)} - {"quick"} == set(HELP) - {"search"}
    in_api = {*job.BudgetIn.model_fields, *job.JobCheck.model_fields, *job.JobOptions.model_fields}
    assert in_api - {"budget", "options", "round_size", *LABELS} == {
        API_LIMITS.get(name, name) for name in HELP if name not in ("minutes", "search_minutes")
    }
    in_app = {field.name for field in fields(app_terms.JobTerms)}
    assert in_app - {"budget", "round_size"} == set(HELP) - {"minutes", "search_minutes", *API_LIMITS}


def test_a_default_is_the_same_everywhere() -> None:
    check = job.JobCheck(budget=job.BudgetIn(trials=1))
    terms = app_terms.JobTerms(budget=Budget(trials=1))
    assert (check.tuner, check.seed, check.priority) == (terms.tuner, terms.seed, terms.priority)
    assert (check.target, check.device_key, check.options.precision) == (None, None, None)
    assert (check.options.search, terms.search) == (True, True)
    assert (check.options.other_shapes, terms.other_shapes, TermOptions().other_shapes) == (True, True, True)
    assert (TermOptions().tuner, TermOptions().seed) == (terms.tuner, terms.seed)
