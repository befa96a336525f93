"""What a compile step attests, and what becomes of a step that cannot sign."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

import pytest
from app_farm import Farm
from signed_farm import finished_job, payload_of, saved, signing_farm

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.identity.signing import SigningKey
from tunefarm_app.steps.attestation import Signer
from tunefarm_app.steps.run import run_step
from tunefarm_db.states.job import JobState
from tunefarm_tuning.core.errors import TransientError


def test_it_says_what_the_artifact_was_made_of(tmp_path: Path) -> None:
    farm, _ = signing_farm(tmp_path)
    job = finished_job(farm)
    artifact, envelope = saved(farm, job, tmp_path / "out")
    statement = payload_of(envelope.read_text())
    (subject,) = statement["subject"]
    sha256 = hashlib.sha256(artifact.read_bytes()).hexdigest()
    assert subject == {"name": "net.tunefarm", "digest": {"sha256": sha256}}
    definition, run = (statement["predicate"][part] for part in ("buildDefinition", "runDetails"))
    model = farm.model(job.model_id)
    assert {"name": "net.onnx", "digest": {"sha256": model.sha256}} in definition["resolvedDependencies"]
    assert definition["externalParameters"]["target"]["kind"] == job.target["kind"]
    with farm.services.uow.read() as repos:
        (device,) = repos.devices.in_pool("pool")
    devices = definition["internalParameters"]["devices"]
    assert {item["role"] for item in devices} == {"checked", "measured"}
    assert {item["id"] for item in devices} == {device.id}
    assert {item["device_model"] for item in devices} == {device.device_model}
    assert run["metadata"]["invocationId"] == job.id
    assert run["metadata"]["startedOn"] <= run["metadata"]["finishedOn"]
    assert run["builder"]["version"]["tunefarm"] == version("tunefarm")
    farm.services.close()


def test_drafts_are_signed(tmp_path: Path) -> None:
    farm, key = signing_farm(tmp_path)
    farm.add_device()
    drafting = farm.with_settings(max_drafts_bytes=1 << 20)
    job = drafting.submit(farm.ready_model(Scenario(tasks=2)), trials=32)
    drafting.run(steps=1)
    farm.inbox.messages.clear()  # a draft gives way to a step that waits
    with farm.services.uow.read() as repos:
        step = repos.steps.find("draft", job.id)
    assert step is not None
    run_step(step.id, drafting.with_engine(ReplayEngine(drafts=True)).services)
    with farm.services.uow.read() as repos:
        drafts = repos.drafts.of([job.id])
    envelope = drafts[job.id].envelope
    assert envelope is not None
    statement = payload_of(envelope)
    assert statement["subject"][0]["digest"]["sha256"] == drafts[job.id].sha256
    assert statement["predicate"]["buildDefinition"]["internalParameters"]["devices"] == []
    assert SigningKey.read(key).id in envelope
    farm.services.close()


def try_again(farm: Farm) -> None:
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE steps SET not_before = 0 WHERE state = 'ready'")
    farm.run_until_quiet()


def test_a_key_that_is_gone_costs_no_compile(tmp_path: Path) -> None:
    """The step waits for as long as it takes, and is tried again; no unsigned artifact comes of it, and no failed job."""
    farm, key = signing_farm(tmp_path)
    held = key.rename(tmp_path / "held")
    farm.add_device()
    model = farm.upload(Scenario(tasks=1))
    farm.run()
    job = farm.submit(model, trials=4)
    farm.run_until_quiet()
    with pytest.raises(TransientError) as failed:
        Signer.of(farm.services)
    assert failed.value.code == "no-signing-key"
    assert farm.job(job.id).state is JobState.COMPILING
    for _ in range(farm.services.settings.max_step_attempts + 1):
        try_again(farm)
        assert farm.job(job.id).state is JobState.COMPILING
    held.rename(key)
    try_again(farm)
    assert farm.job(job.id).state is JobState.SUCCEEDED
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job.id)
    assert artifact is not None
    assert artifact.envelope is not None
    farm.services.close()
