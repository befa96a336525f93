from __future__ import annotations

import json

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.trace import job_trace, short_trace
from tunefarm_app.operations.retention import apply_retention
from tunefarm_db.states.job import JobState
from tunefarm_tuning.core.spans import SpanKind


def test_every_second_of_a_job_is_accounted_for(farm) -> None:
    model = farm.upload(Scenario(tasks=2))
    farm.run()
    farm.add_device()
    job = farm.submit(farm.model(model.id), trials=16)
    with farm.services.uow.read() as repos:
        assert short_trace(repos, job) is None, "the job has not ended"
    farm.run()
    job = farm.job(job.id)
    assert job.state is JobState.SUCCEEDED
    with farm.services.uow.read() as repos:
        trace = job_trace(repos, job)
        assert short_trace(repos, job) == trace
    names = [span.name for span in trace.spans if span.kind is SpanKind.STEP]
    assert names[0] == "step import"
    assert names[1] == "step extract"
    assert names[-1] == "step compile"
    assert "step tune" in names
    assert abs(sum(trace.seconds().values()) - (trace.ended - trace.began)) < 1e-6
    chrome = json.loads(json.dumps(trace.to_chrome()))
    assert chrome["otherData"]["seconds"] == dict(trace.seconds())
    assert {"worker"} == {e["args"]["name"] for e in chrome["traceEvents"] if e["ph"] == "M"}


def test_a_later_job_did_not_wait_for_the_import(farm, monkeypatch) -> None:
    model = farm.ready_model()
    farm.add_device()
    monkeypatch.setattr("tunefarm_app.jobs.trace._WAITED_SEC", -1.0)
    job = farm.submit(model, trials=8)
    farm.run()
    with farm.services.uow.read() as repos:
        trace = job_trace(repos, farm.job(job.id))
    assert "step import" not in {span.name for span in trace.spans}
    assert trace.began >= job.created_at - 1.0


def test_a_second_job_soon_after_did_not_wait_for_the_first_ones_import(farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    first = farm.submit(model, trials=8)
    farm.run()
    second = farm.submit(model, trials=16)
    farm.run()
    with farm.services.uow.read() as repos:
        of_first, of_second = (job_trace(repos, farm.job(job.id)) for job in (first, second))
    assert "step import" in {span.name for span in of_first.spans}
    assert "step import" not in {span.name for span in of_second.spans}
    assert of_second.began >= farm.job(second.id).created_at - 1.0


def test_traces_are_kept_for_some_days(farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(), trials=8)
    farm.run()
    apply_retention(farm.services)
    with farm.services.uow.read() as repos:
        assert repos.traces.of_job(farm.job(job.id))
    apply_retention(farm.with_settings(keep_traces_days=1e-9).services)
    with farm.services.uow.read() as repos:
        assert repos.traces.of_job(farm.job(job.id)) == ()
