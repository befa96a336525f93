"""What a key may use: each limit, who shares it, what counts, and requests side by side."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm, farm_settings, make_farm
from migrated_database import upgrade

from tunefarm_app.access.api_keys import create_api_key, limit_api_key, list_api_keys, rotate_api_key
from tunefarm_app.access.quotas import WINDOW_SEC, KeyLimits, QuotaError, reserved_bytes
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import cancel_job, retry_job
from tunefarm_app.jobs.measure_again import measure_again
from tunefarm_app.jobs.submit import JobRequest, compile_now, submit_job
from tunefarm_app.models.removal import delete_model
from tunefarm_app.models.uploads import begin_upload, end_upload
from tunefarm_app.storage.blob_store import too_large
from tunefarm_db.acting import Acting, act_as
from tunefarm_db.states.job import JobState
from tunefarm_db.values import ApiKey, Job
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError
from tunefarm_tuning.search.budget import Budget


@pytest.fixture
def farm(tmp_path: Path, database_url: str) -> Iterator[Farm]:
    settings = farm_settings(tmp_path, database_url=database_url)
    upgrade(database_url)
    farm = make_farm(settings)
    farm.add_device()
    yield farm
    farm.services.close()


def acting_for(key: ApiKey) -> Acting:
    return Acting(via="api", key_id=key.id, owner=key.owner)


def limited(farm: Farm, **limits: Any) -> ApiKey:
    key, _ = create_api_key(farm.services, name="limited", scopes=["write"], limits=KeyLimits(**limits))
    return key


def job_of(farm: Farm, model_id: str, wall_sec: float | None = None, **terms: Any) -> Job:
    budget = Budget(trials=8, wall_sec=wall_sec)
    return submit_job(farm.services, JobRequest(model_id=model_id, budget=budget, **terms)).job


def refusal(code: str, call: Any) -> QuotaError:
    with pytest.raises(QuotaError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def test_rows_say_who_owns_them(farm: Farm) -> None:
    key = limited(farm)
    with act_as(acting_for(key)):
        model = farm.ready_model()
        job = job_of(farm, model.id)
        device = farm.add_device("dev-2")
    assert (model.owner, job.owner, device.owner) == (key.id, key.id, key.id)
    assert farm.ready_model(Scenario(seed=5)).owner is None, "the farm itself owns nothing"


def test_open_jobs(farm: Farm) -> None:
    key = limited(farm, open_jobs=2)
    model = farm.ready_model()
    with act_as(acting_for(key)):
        first = job_of(farm, model.id)
        job_of(farm, model.id)
        refused = refusal("quota-open-jobs", lambda: job_of(farm, model.id))
        assert refused.fields["limit"] == refused.fields["used"] == 2
        assert "wait until one ends" in refused.message
        cancel_job(farm.services, first.id)
        job_of(farm, model.id)
    job_of(farm, model.id)  # the farm's own, or another key's
    other = limited(farm, open_jobs=1)
    with act_as(acting_for(other)):
        job_of(farm, model.id)


def test_an_artifact_that_is_measured_again_is_an_open_job(farm: Farm) -> None:
    """Before, a key with limits could have any number measured at once, each of which holds a device."""
    key = limited(farm, open_jobs=2)
    model = farm.ready_model()
    with act_as(acting_for(key)):
        first, second = job_of(farm, model.id), job_of(farm, model.id)
        farm.run_until_quiet()
        measure_again(farm.services, first.id)
        job_of(farm, model.id)
        refused = refusal("quota-open-jobs", lambda: measure_again(farm.services, second.id))
        assert refused.fields["used"] == 2
        refusal("quota-open-jobs", lambda: job_of(farm, model.id))
        assert measure_again(farm.services, first.id).state == "waiting", "the one that is under way"
        farm.run_until_quiet()
        assert measure_again(farm.services, second.id).state == "waiting"
        farm.run_until_quiet()
    other, _ = create_api_key(farm.services, name="other", scopes=["write"])
    with act_as(acting_for(other)):  # before, what others asked for counted for the owner of the jobs
        assert measure_again(farm.services, first.id).state == "waiting"
        assert measure_again(farm.services, second.id).state == "waiting"
    with act_as(acting_for(key)):
        job_of(farm, model.id)


def test_many_requests_of_a_key_at_once_do_not_pass_its_limit(farm: Farm) -> None:
    key = limited(farm, open_jobs=3)
    model = farm.ready_model()

    def submit(_: int) -> bool:
        with act_as(acting_for(key)):
            try:
                job_of(farm, model.id)
            except QuotaError:
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(submit, range(16))) == 3


def test_a_rotated_key_shares_the_limits(farm: Farm) -> None:
    key = limited(farm, open_jobs=1)
    model = farm.ready_model()
    successor, _ = rotate_api_key(farm.services, key.id)
    third, _ = rotate_api_key(farm.services, successor.id)
    assert third.owner == key.id
    with act_as(acting_for(key)):
        job_of(farm, model.id)
    with act_as(acting_for(third)):
        refusal("quota-open-jobs", lambda: job_of(farm, model.id))
        limit_api_key(farm.services, third.id, KeyLimits(open_jobs=2))
        assert job_of(farm, model.id).owner == key.id
    assert [entry.limits for entry in list_api_keys(farm.services)] == [{"open_jobs": 2}] * 3
    with pytest.raises(NotFoundError):
        limit_api_key(farm.services, "none", KeyLimits())


def test_priorities(farm: Farm) -> None:
    key = limited(farm, priority=0)
    model = farm.ready_model()
    with act_as(acting_for(key)):
        job = job_of(farm, model.id, priority=-5)
        refused = refusal("quota-priority", lambda: job_of(farm, model.id, priority=1))
        assert refused.fields["limit"] == 0
        change_job(farm.services, job.id, JobChange(priority=0))
        refusal("quota-priority", lambda: change_job(farm.services, job.id, JobChange(priority=1)))
    raised = change_job(farm.services, job.id, JobChange(priority=50))
    assert raised.priority == 50, "an administrator may"
    with act_as(acting_for(key)):
        assert change_job(farm.services, job.id, JobChange(priority=9)).priority == 9, "it may come down"


def test_minutes_of_search(farm: Farm) -> None:
    key = limited(farm, device_minutes=10.0)
    model = farm.ready_model()
    with act_as(acting_for(key)):
        refused = refusal("quota-device-minutes", lambda: job_of(farm, model.id))
        assert refused.fields["left"] == 10.0
        assert "time budget" in refused.message
        refusal("quota-device-minutes", lambda: job_of(farm, model.id, wall_sec=601.0))
        job = job_of(farm, model.id, wall_sec=400.0)
        refused = refusal("quota-device-minutes", lambda: job_of(farm, model.id, wall_sec=300.0))
        assert refused.fields["left"] == pytest.approx(10.0 - 400 / 60, abs=0.01)
        job_of(farm, model.id, wall_sec=200.0)
        more = JobChange(budget={"wall_sec": 401.0})
        refusal("quota-device-minutes", lambda: change_job(farm.services, job.id, more))
        endless = JobChange(budget={"wall_sec": None})
        refusal("quota-device-minutes", lambda: change_job(farm.services, job.id, endless))
        change_job(farm.services, job.id, JobChange(budget={"wall_sec": 300.0}))
        submit_job(farm.services, JobRequest(model_id=model.id, search=False))  # compiling is no search
        cancel_job(farm.services, job.id)
        job_of(farm, model.id, wall_sec=400.0)


def test_what_ended_jobs_searched_counts(farm: Farm) -> None:
    key = limited(farm, device_minutes=10.0)
    model = farm.ready_model()
    with act_as(acting_for(key)):
        job = job_of(farm, model.id, wall_sec=500.0)
    with farm.services.uow.write() as repos:
        repos.jobs.update(job.id, tuned_sec=120.0)
    cancel_job(farm.services, job.id)
    with act_as(acting_for(key)):
        refusal("quota-device-minutes", lambda: job_of(farm, model.id, wall_sec=481.0))
        job_of(farm, model.id, wall_sec=480.0)


def test_a_search_counts_from_its_end(farm: Farm) -> None:
    key = limited(farm, device_minutes=10.0)
    with act_as(acting_for(key)):
        job = job_of(farm, farm.ready_model().id, wall_sec=500.0)
    with farm.services.uow.write() as repos:
        repos.jobs.update(job.id, tuned_sec=120.0)
    cancel_job(farm.services, job.id)
    long_ago = job.created_at - WINDOW_SEC - 1
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE jobs SET created_at = {long_ago}")
    with farm.services.uow.read() as repos:
        assert repos.usage.searched_sec(key.id, WINDOW_SEC) == 120.0
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE jobs SET finished_at = {long_ago}")
    with farm.services.uow.read() as repos:
        assert repos.usage.searched_sec(key.id, WINDOW_SEC) == 0.0


def test_a_limited_key_gives_the_jobs_of_others_no_more(farm: Farm) -> None:
    key = limited(farm, device_minutes=10.0, open_jobs=1)
    model, services = farm.ready_model(), farm.services
    other = job_of(farm, model.id, wall_sec=60.0)
    more: list[dict[str, Any]] = [{"wall_sec": 61.0}, {"wall_sec": None}, {"trials": 9}, {"trials": None}]
    with act_as(acting_for(key)):
        for budget in more:
            change = JobChange(budget=budget)
            refused = refusal("quota-own-jobs", lambda change=change: change_job(services, other.id, change))
            assert "not its own" in refused.message
        refusal("quota-own-jobs", lambda: change_job(services, other.id, JobChange(priority=1)))
        less = change_job(services, other.id, JobChange(priority=-1, budget={"wall_sec": 30.0}, tags=["a"]))
        assert (less.priority, less.budget["wall_sec"], less.tags) == (-1, 30.0, ["a"])
        refusal("quota-own-jobs", lambda: measure_again(services, other.id))
    with services.uow.write() as repos:
        repos.steps.cancel_open(job_id=other.id)
    with services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET state = 'failed'")
        connection.exec_driver_sql("UPDATE steps SET state = 'failed' WHERE job_id IS NOT NULL")
    with act_as(acting_for(key)):
        refusal("quota-own-jobs", lambda: retry_job(services, other.id))
        assert farm.job(other.id).state is JobState.FAILED
    with act_as(acting_for(limited(farm, bytes=1))):  # its limit is none of jobs
        assert retry_job(services, other.id).state is JobState.QUEUED
        change_job(services, other.id, JobChange(budget={"wall_sec": 600.0}, priority=3))


def test_compiling_so_far_needs_no_higher_priority_than_the_job_has(farm: Farm) -> None:
    key = limited(farm, priority=0)
    with act_as(acting_for(key)):
        job = job_of(farm, farm.ready_model().id)
        compiled = compile_now(farm.services, job.id).job
        assert compiled.priority == 1
    raised = change_job(farm.services, job_of(farm, job.model_id).id, JobChange(priority=5))
    with act_as(acting_for(key)):
        cancel_job(farm.services, compiled.id)
        refusal("quota-priority", lambda: compile_now(farm.services, raised.id))


def test_a_retried_job_is_an_open_job_again(farm: Farm) -> None:
    key = limited(farm, open_jobs=1)
    model = farm.ready_model()
    with act_as(acting_for(key)):
        failed = job_of(farm, model.id)
    with farm.services.uow.write() as repos:
        repos.steps.cancel_open(job_id=failed.id)
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET state = 'failed'")
        connection.exec_driver_sql("UPDATE steps SET state = 'failed' WHERE job_id IS NOT NULL")
    with act_as(acting_for(key)):
        job_of(farm, model.id)
        refusal("quota-open-jobs", lambda: retry_job(farm.services, failed.id))


def test_bytes_are_reserved_from_the_beginning(farm: Farm) -> None:
    key = limited(farm, bytes=1000)
    services = farm.services
    with act_as(acting_for(key)):

        def begin(size_bytes: int) -> str:
            return begin_upload(services, api_key_id=key.id, name="a", size_bytes=size_bytes).id

        upload = begin(600)
        refused = refusal("quota-bytes", lambda: begin(401))
        assert (refused.fields["limit"], refused.fields["used"]) == (1000, 600)
        with reserved_bytes(services, 400, 10_000) as reserved:
            assert reserved.allowed == 400
            refusal("quota-bytes", lambda: begin(1))
        end_upload(services, upload, api_key_id=key.id)
        with reserved_bytes(services, None, 10_000) as reserved:
            assert reserved.allowed == 1000, "all that is left, if the client does not say how much comes"
        with pytest.raises(QuotaError) as caught, reserved_bytes(services, None, 10_000) as reserved:
            raise too_large(reserved.allowed)
        assert (caught.value.fields["limit"], caught.value.fields["used"]) == (1000, 0)
        server_limit = pytest.raises(
            InvalidInputError, match="limit of this server"
        )  # the key has room for more
        with server_limit, reserved_bytes(services, None, 500) as reserved:
            raise too_large(reserved.allowed)
        with reserved_bytes(services, 1000, 10_000):
            pass


def test_models_and_samples_count_until_they_are_deleted(farm: Farm) -> None:
    key = limited(farm, bytes=100_000)
    with act_as(acting_for(key)):
        model = farm.ready_model()
        with farm.services.uow.read() as repos:
            assert repos.usage.size_bytes(key.id) == model.size_bytes
        # The same file with other shapes is another model, and the same bytes.
        limit_api_key(farm.services, key.id, KeyLimits(bytes=model.size_bytes))
        with pytest.raises(QuotaError), reserved_bytes(farm.services, 1, 10_000):
            pass
        assert farm.services.blobs.path_of(model.sha256).is_file()
        delete_model(farm.services, model.id)
        assert not farm.services.blobs.path_of(model.sha256).exists(), (
            "what no longer counts takes no room either"
        )
        with reserved_bytes(farm.services, model.size_bytes, 10_000_000):
            pass


def test_a_reservation_ends_by_itself(farm: Farm) -> None:
    key = limited(farm, bytes=1000)
    with farm.services.uow.write() as repos:
        repos.usage.reserve_bytes(key.id, 1000, keep_sec=-1.0)
        assert repos.usage.size_bytes(key.id) == 0


def test_a_reservation_lasts_while_bytes_come(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    key = limited(farm, bytes=1000)

    def used() -> int:
        with farm.services.uow.read() as repos:
            return repos.usage.size_bytes(key.id)

    with act_as(acting_for(key)), reserved_bytes(farm.services, 600, 1000) as reserved:
        with farm.services.uow.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE reserved_bytes SET expires_at = 1.0")
        reserved.renew()
        assert used() == 0, "it is not due yet"
        monkeypatch.setattr("tunefarm_app.access.quotas.RENEW_SEC", 0.0)
        reserved.renew()
        assert used() == 600
    assert used() == 0


def test_keys_without_limits_and_the_farm_are_not_held(farm: Farm) -> None:
    key = limited(farm)
    with act_as(acting_for(key)), reserved_bytes(farm.services, None, 77) as reserved:
        assert reserved.allowed == 77
    with reserved_bytes(farm.services, 5, 77) as reserved:
        assert reserved.allowed == 77
    with act_as(Acting(key_id="gone", owner="gone")), reserved_bytes(farm.services, 5, 77) as reserved:
        assert reserved.allowed == 77


def test_limits_as_they_are_stored() -> None:
    limits = KeyLimits(bytes=5, priority=-1)
    assert limits.to_json() == {"bytes": 5, "priority": -1}
    assert KeyLimits.from_json({**limits.to_json(), "of a later version": 1}) == limits
