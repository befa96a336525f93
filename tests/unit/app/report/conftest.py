"""The report of a finished job."""

from __future__ import annotations

import pytest
from app_farm import Farm
from reported_farm import ReportingEngine, finished_job

from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.document import JobReport
from tunefarm_db.states.job import JobState


@pytest.fixture
def report(farm: Farm) -> JobReport:
    farm, job_id = finished_job(farm, ReportingEngine())
    assert farm.job(job_id).state is JobState.SUCCEEDED, farm.job(job_id).error
    return job_report(farm.services, job_id)
