"""Samples of a model: checked by a worker, kept for jobs, deleted with their model, and never left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from app_farm import Farm
from sample_files import blobs_in, checked, npz, send

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.models.removal import delete_model, sweep_blobs
from tunefarm_app.models.samples import (
    MAX_PER_MODEL,
    delete_samples,
    find_samples,
    list_samples,
    submit_samples,
)
from tunefarm_app.operations.backup import back_up, restore
from tunefarm_db.states.job import JobState
from tunefarm_db.values import SampleState
from tunefarm_tuning.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TransientError,
    TunefarmError,
)


def expire(farm: Farm) -> None:
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE sample_files SET expires_at = 1 WHERE expires_at IS NOT NULL")


class SeeingEngine(ReplayEngine):
    """Keeps the bytes of the samples that a compile was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes] = []

    def compile(self, *args: Any, **named: Any) -> Any:
        self.seen += [path.read_bytes() for path in args[3].samples]
        return super().compile(*args, **named)


def test_a_job_compiles_with_its_samples(farm: Farm) -> None:
    engine = SeeingEngine()
    farm = farm.with_engine(engine)
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    samples = send(farm, model, npz(20))
    assert (samples.state, samples.name) == (SampleState.CHECKING, "street.npz")
    with pytest.raises(ConflictError) as early:
        farm.submit(model, samples=[samples.id])
    assert early.value.code == "samples-checking"
    farm.run()
    ready = find_samples(farm.services, model.id, samples.id)
    assert (ready.state, ready.sets, len(ready.used)) == (SampleState.READY, 20, 8)
    other = checked(farm, model, npz(2))
    job = farm.submit(model, samples=[samples.id, other.id, samples.id])
    assert job.options["samples"] == [samples.id, other.id]
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert engine.seen == [npz(20), npz(2)]
    assert farm.submit(model).options.get("samples") is None


def test_the_request_of_a_job_has_its_samples_in_its_digest(farm: Farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    samples = checked(farm, model, npz())
    first = farm.submit(model, key="k", samples=[samples.id])
    assert farm.submit(model, key="k", samples=[samples.id]).id == first.id
    with pytest.raises(ConflictError) as other:
        farm.submit(model, key="k")
    assert other.value.code == "idempotency-key-reused"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (npz(x=np.ones((1, 8))), "sample-dtype"),
        (npz(x=np.ones((1, 9), np.float32)), "sample-shape"),
        (npz(y=np.ones((1, 8), np.float32)), "unknown-sample"),
        (npz(x=np.full((1, 8), np.nan, np.float32)), "sample-not-finite"),
        (npz()[:200], "damaged-samples"),
    ],
)
def test_samples_that_do_not_fit_leave_nothing_but_their_error(farm: Farm, content: bytes, code: str) -> None:
    model = farm.ready_model()
    before = blobs_in(farm)
    samples = checked(farm, model, content)
    assert (samples.state, samples.sets) == (SampleState.FAILED, None)
    assert samples.error is not None
    assert samples.error["code"] == code
    assert blobs_in(farm) == before
    farm.add_device()
    with pytest.raises(InvalidInputError, match="the samples cannot be used") as refused:
        farm.submit(model, samples=[samples.id])
    assert refused.value.code == "samples-refused"
    assert refused.value.fields["error"]["code"] == code


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"hello", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_npz_is_refused_at_once(farm: Farm, content: bytes) -> None:
    model = farm.ready_model()
    before = blobs_in(farm)
    with pytest.raises(InvalidInputError) as refused:
        send(farm, model, content)
    assert refused.value.code in ("empty-samples", "not-npz")
    assert blobs_in(farm) == before
    assert list_samples(farm.services, model.id) == ()


def test_the_same_bytes_are_the_same_samples(farm: Farm) -> None:
    model = farm.ready_model()
    samples = checked(farm, model, npz())
    again = send(farm, model, npz(), "other.npz")
    assert (again.id, again.state, again.name) == (samples.id, SampleState.READY, "street.npz")
    assert farm.inbox.messages == []
    bad = npz(x=np.ones((1, 8)))
    refused = checked(farm, model, bad)
    assert (
        send(farm, model, bad).state is SampleState.CHECKING
    )  # once more: the machine may have been to blame
    farm.run()
    assert find_samples(farm.services, model.id, refused.id).state is SampleState.FAILED


def test_samples_for_models_that_are_not_ready(farm: Farm) -> None:
    importing = farm.upload(Scenario())
    before = blobs_in(farm)
    with pytest.raises(ConflictError) as early:
        send(farm, importing, npz())
    assert early.value.code == "model-importing"
    farm.run()
    failed = farm.upload(b"\x08nonsense")
    farm.run()
    with pytest.raises(InvalidInputError) as wrong:
        send(farm, failed, npz())
    assert wrong.value.code == "model-failed"
    with pytest.raises(NotFoundError):
        submit_samples(farm.services, "mdl_none", name="x", blob=farm.services.blobs.put([npz()]))
    assert blobs_in(farm) == before


def test_another_models_samples(farm: Farm) -> None:
    first, second = farm.ready_model(Scenario(seed=1)), farm.ready_model(Scenario(seed=2))
    farm.add_device()
    samples = checked(farm, first, npz())
    with pytest.raises(NotFoundError) as foreign:
        farm.submit(second, samples=[samples.id])
    assert foreign.value.code == "samples-not-found"
    with pytest.raises(InvalidInputError) as many:
        farm.submit(first, samples=[f"smp_{number}" for number in range(9)])
    assert many.value.code == "too-many-sample-files"


def test_samples_go_with_their_model(farm: Farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    samples = checked(farm, model, npz())
    job = farm.submit(model, samples=[samples.id])
    with pytest.raises(ConflictError) as used:
        delete_samples(farm.services, model.id, samples.id)
    assert used.value.code == "samples-in-use"
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    checking = send(farm, model, npz(9))
    delete_model(farm.services, model.id)
    assert not {samples.sha256, checking.sha256} & blobs_in(farm)
    farm.run()  # the check of the second file finds nothing to do
    with farm.services.uow.read() as repos:
        assert repos.samples.of_model(model.id) == ()
    with pytest.raises(NotFoundError):
        list_samples(farm.services, model.id)


def test_samples_are_deleted_alone(farm: Farm) -> None:
    model = farm.ready_model()
    samples = checked(farm, model, npz())
    delete_samples(farm.services, model.id, samples.id)
    assert samples.sha256 not in blobs_in(farm)
    with pytest.raises(NotFoundError) as gone:
        delete_samples(farm.services, model.id, samples.id)
    assert gone.value.code == "samples-not-found"


def test_the_same_bytes_of_two_models_are_one_blob(farm: Farm) -> None:
    first, second = farm.ready_model(Scenario(seed=1)), farm.ready_model(Scenario(seed=2))
    samples = checked(farm, first, npz())
    checked(farm, second, npz())
    delete_model(farm.services, first.id)
    assert samples.sha256 in blobs_in(farm)
    delete_model(farm.services, second.id)
    assert samples.sha256 not in blobs_in(farm)


def test_samples_that_no_job_uses_are_swept(farm: Farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    kept, left = checked(farm, model, npz(1)), checked(farm, model, npz(2))
    farm.submit(model, samples=[kept.id])
    expire(farm)
    sweep_blobs(farm.services, unreferenced_age_sec=0.0)
    assert kept.sha256 in blobs_in(farm)
    assert left.sha256 not in blobs_in(farm)
    assert [samples.id for samples in list_samples(farm.services, model.id)] == [kept.id]


def test_a_job_whose_samples_are_gone_fails_with_a_reason(farm: Farm) -> None:
    """They cannot be deleted while the job runs; a restored database may have lost them."""
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    samples = checked(farm, model, npz())
    job = farm.submit(model, samples=[samples.id])
    with farm.services.uow.write() as repos:
        repos.samples.delete(samples.id)
    farm.run()
    failed = farm.job(job.id)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "samples-not-found"


def test_too_many_files_of_a_model(farm: Farm) -> None:
    model = farm.ready_model()
    with farm.services.uow.write() as repos:
        for number in range(MAX_PER_MODEL):
            repos.samples.add(
                model_id=model.id, name="x", sha256=f"{number:064}", size_bytes=1, keep_sec=60.0
            )
    before = blobs_in(farm)
    with pytest.raises(ConflictError) as many:
        send(farm, model, npz())
    assert many.value.code == "too-many-samples"
    assert blobs_in(farm) == before


class FailingEngine(ReplayEngine):
    """Its check of samples fails."""

    def __init__(self, *errors: TunefarmError) -> None:
        super().__init__()
        self.errors = list(errors)

    def check_samples(self, *args: Any, **named: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return super().check_samples(*args, **named)


def test_a_check_that_a_machine_disturbed_is_tried_again(farm: Farm) -> None:
    engine = FailingEngine(TransientError("the disk is full", code="store-full"))
    farm = farm.with_engine(engine)
    model = farm.ready_model()
    samples = send(farm, model, npz())
    farm.run()
    assert find_samples(farm.services, model.id, samples.id).state is SampleState.CHECKING
    assert samples.sha256 in blobs_in(farm)
    farm.run_again(engine)
    assert find_samples(farm.services, model.id, samples.id).state is SampleState.READY


def test_a_killed_worker_s_check_is_taken_back(farm: Farm) -> None:
    model = farm.ready_model()
    samples = send(farm, model, npz())
    step_id = farm.inbox.messages.pop()
    with farm.services.uow.write() as repos:
        assert repos.steps.claim(step_id, "killed", 30.0) is not None
    farm.end_leases()
    farm.inbox.messages.append(step_id)
    farm.run()
    assert find_samples(farm.services, model.id, samples.id).state is SampleState.READY


def test_samples_are_in_a_backup(farm: Farm, tmp_path: Path) -> None:
    model = farm.ready_model()
    samples = checked(farm, model, npz())
    settings = farm.services.settings
    backup = back_up(settings.database_url.get_secret_value(), farm.services.blobs, tmp_path / "b.tar")
    assert samples.sha256 in backup.blobs
    twin = farm.empty_twin(tmp_path)
    url = twin.services.settings.database_url.get_secret_value()
    twin.services.close()
    restore(tmp_path / "b.tar", database_url=url, store=twin.services.blobs, replace=True)
    assert twin.services.blobs.path(samples.sha256).read_bytes() == npz()
    restored = find_samples(twin.services, model.id, samples.id)
    assert (restored.state, restored.sets) == (SampleState.READY, 3)
    twin.services.close()
