"""The queries of the dashboard, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_db.repositories.selection import JobOrder
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import DeviceState, ModelState, StepKind, Workload


def test_jobs_are_filtered_sorted_and_counted(seed: Any, uow: UnitOfWork) -> None:
    models = [
        seed.model(sha256=f"{n:064}", name=name) for n, name in enumerate(["Beta_1", "alpha%", "gamma"])
    ]
    jobs = [seed.job(model, device_key=f"pool-{n % 2}") for n, model in enumerate(models)]
    with uow.write() as repos:
        repos.jobs.update(jobs[0].id, trials=5, best_latency_sec=2.0)
        repos.jobs.update(jobs[2].id, trials=9, best_latency_sec=1.0)
        repos.jobs.move(jobs[1].id, JobState.CANCELLED)

    def names(**filters: Any) -> list[str]:
        with uow.read() as repos:
            shown, total = repos.overview.jobs(**filters)
        assert total == len(shown) or "limit" in filters
        return [line.model_name for line in shown]

    assert names() == ["gamma", "alpha%", "Beta_1"]
    assert names(order=JobOrder.OLDEST) == ["Beta_1", "alpha%", "gamma"]
    assert names(order=JobOrder.MODEL) == ["alpha%", "Beta_1", "gamma"]
    assert names(order=JobOrder.TRIALS) == ["gamma", "Beta_1", "alpha%"]
    assert names(order=JobOrder.LATENCY) == ["gamma", "Beta_1", "alpha%"]
    assert set(names(order=JobOrder.CHANGED)) == {"gamma", "Beta_1", "alpha%"}
    assert names(states=[JobState.CANCELLED]) == ["alpha%"]
    assert names(model_text="A%") == ["alpha%"]
    assert names(model_text="_1") == ["Beta_1"]
    assert names(model_text="BETA") == ["Beta_1"]
    assert names(device_key="pool-1") == ["alpha%"]
    assert names(limit=1, offset=1) == ["alpha%"]
    assert names(model_text="nothing") == []
    with uow.read() as repos:
        assert repos.overview.pools() == ("pool-0", "pool-1")
        assert repos.overview.count_jobs([model.id for model in models]) == {model.id: 1 for model in models}
        assert (
            repos.overview.count_jobs([])
            == repos.overview.reports([])
            == repos.overview.jobs_of_steps([])
            == {}
        )


def test_tags_that_lists_offer(seed: Any, uow: UnitOfWork) -> None:
    model = seed.model()
    first, second = seed.job(model, tags=["b", "a"]), seed.job(model, tags=["ü", "a"])
    seed.job(model)
    with uow.read() as repos:
        assert repos.overview.tags() == ("a", "b", "ü")
        assert repos.overview.model_tags() == ()
    with uow.write() as repos:
        repos.models.label(model.id, tags=["ocr"])
        repos.jobs.label(first.id, tags=[])
        assert repos.overview.tags() == ("a", "ü")
        assert repos.overview.model_tags() == ("ocr",)
        repos.jobs.label(second.id, tags=[])
        assert repos.overview.tags() == ()


def test_the_times_of_compiles(seed: Any, uow: UnitOfWork) -> None:
    model, other = seed.model(sha256="a" * 64), seed.model(sha256="b" * 64)
    facts: list[tuple[Any, str, int, dict[str, Any]]] = [
        (model, "p", 5, {"phases_sec": {"load": 1.0, "measure": 2.5}}),
        (model, "p", 5, {"phases_sec": {}}),
        (model, "p", 0, {"phases_sec": {"load": 9.0}}),  # without a search
        (model, "q", 5, {"phases_sec": {"load": 8.0}}),  # on other devices
        (
            other,
            "p",
            5,
            {"phases_sec": {"load": 4, "measure": 6.0}, "baselines_sec": {"openvino": 5.0, "litert": 1.0}},
        ),
        (model, "p", 5, {}),
        (
            model,
            "p",
            5,
            {"phases_sec": {"load": 1.0, "other-shapes": 30.0}, "other_shapes": {"entry": "main_1"}},
        ),
        (model, "p", 5, {"phases_sec": {"load": 2.0, "other-shapes": 3.0}, "other_shapes": {"entry": None}}),
    ]
    jobs = [seed.job(model, device_key=pool) for model, pool, _, _ in facts]
    with uow.write() as repos:
        for number, (job, (_, _, trials, report)) in enumerate(zip(jobs, facts, strict=True)):
            digest = f"{number:x}" * 64
            repos.blobs.add(digest, size_bytes=1, media_type="text/plain")
            repos.jobs.update(job.id, trials=trials)
            repos.artifacts.add(
                job_id=job.id, sha256=digest, size_bytes=1, name="a", manifest={}, report=report
            )
    with uow.read() as repos:
        assert repos.overview.compile_times(jobs[0], same_model=True, limit=9) == [
            (2.0, 0, {}),
            (1.0, 0, {"other-shapes": 30.0}),
            (3.5, 0, {}),
        ], "what was not built in time says nothing of how long it takes"
        assert repos.overview.compile_times(jobs[0], same_model=False, limit=9) == [
            (4.0, 0, {"openvino": 5.0, "litert": 1.0})
        ]
        assert repos.overview.compile_times(jobs[3], same_model=False, limit=9) == []


def test_the_pace_of_a_pool(seed: Any, uow: UnitOfWork) -> None:
    jobs = [seed.job(device_key="p", seed=n) for n in range(3)]
    with uow.write() as repos:
        assert repos.overview.search_rate("p") is None
        repos.jobs.update(jobs[0].id, trials=30, tuned_sec=10.0)
        repos.jobs.update(jobs[1].id, trials=10, tuned_sec=10.0)
        assert repos.overview.search_rate("p") == pytest.approx(2.0)


def test_heads_follow_what_is_open_or_new(seed: Any, uow: UnitOfWork) -> None:
    old = [seed.job(seed=n) for n in range(30)]
    with uow.write() as repos:
        for job in old[:8]:
            repos.jobs.move(job.id, JobState.CANCELLED)
    with uow.read() as repos:
        heads = {head.id: head for head in repos.overview.job_heads()}
        assert set(heads) == {job.id for job in old[8:]}
        followed = repos.overview.job_heads([old[0].id])
        assert {head.id for head in followed} == {*heads, old[0].id}
        assert {head.state for head in repos.overview.model_heads()} == {ModelState.IMPORTING}
        assert repos.overview.device_heads() == ()
    device = seed.device()
    with uow.read() as repos:
        (head,) = repos.overview.device_heads()
    assert (head.id, head.state) == (device.id, DeviceState.ONLINE)


def test_events_by_what_is_shown_of_them(seed: Any, uow: UnitOfWork) -> None:
    job = seed.job()
    with uow.write() as repos:
        for kind in ("queued", "phase", "round", "round", "confirmed", "finished"):
            repos.events.add(job.id, kind, {"kind": kind})
    with uow.read() as repos:
        assert [seq for seq, _, _ in repos.overview.curve(job.id)] == [3, 4, 5]
        assert [data["kind"] for _, _, data in repos.overview.curve(job.id, 3)] == ["round", "confirmed"]
        assert [event.seq for event in repos.overview.milestones(job.id)] == [1, 2, 6]
        assert [event.seq for event in repos.overview.newest_events(job.id, limit=2)] == [6, 5]
        assert [event.seq for event in repos.overview.newest_events(job.id, before=4, rounds=False)] == [2, 1]


def test_when_a_model_was_imported(seed: Any, uow: UnitOfWork) -> None:
    model = seed.model()
    with uow.write() as repos:
        assert repos.overview.import_times(model.id) is None
        repos.steps.add(StepKind.IMPORT, subject_id=model.id, model_id=model.id)
        began, ended = repos.overview.import_times(model.id) or (0.0, 0.0)
    assert began > 0
    assert ended is None


def test_the_job_that_a_step_works_for(seed: Any, uow: UnitOfWork) -> None:
    step = seed.step()
    with uow.read() as repos:
        assert repos.overview.jobs_of_steps([step.id, "stp_none"]) == {step.id: step.job_id}


def test_the_trials_of_a_task(seed: Any, uow: UnitOfWork, new_trial: Any) -> None:
    job = seed.job()
    with uow.write() as repos:
        repos.trials.add_many(
            job.id,
            0,
            [
                new_trial(0, cost_sec=2.0),
                new_trial(1, outcome="run-error", cost_sec=None, message="boom"),
                new_trial(2, cost_sec=1.0),
                new_trial(3, outcome="run-error", cost_sec=None, message="boom"),
                new_trial(4, outcome="build-error", cost_sec=None, message="no"),
            ],
        )
    with uow.read() as repos:
        assert [cost for _, cost in repos.searches.ends(job.id, 0)] == [2.0, None, 1.0, None, None]
        failed = repos.searches.failures(job.id, 0)
        assert [(trial.outcome, trial.message) for trial in failed] == [
            ("build-error", "no"),
            ("run-error", "boom"),
            ("run-error", "boom"),
        ]
        assert len(repos.searches.failures(job.id, 0, limit=1)) == 1
        assert repos.searches.failures(job.id, 1) == ()
        fastest = repos.searches.fastest(job.id, 0)
        assert fastest is not None
        assert fastest.cost_sec == 1.0
        assert repos.searches.fastest(job.id, 1) is None


def test_workloads_and_how_the_best_fell(uow: UnitOfWork, new_record: Any) -> None:
    workloads = [
        Workload(key=key, toolchain="t", name=name, flops=1.0, args=[], ir="{}")
        for key, name in (("w1", "conv2d_1"), ("w2", "Matmul"))
    ]
    with uow.write() as repos:
        repos.workloads.add_many(workloads)
        ids = repos.records.add_many(
            [
                new_record("w1", cost, config=[0, [number]])
                for number, cost in enumerate((3.0, None, 5.0, 2.0, 4.0, 1.0))
            ]
        )
    with uow.read() as repos:
        assert repos.searches.workloads_like("CONV2D_", limit=5) == ("w1",)
        assert repos.searches.workloads_like("w", limit=5) == ("w1", "w2")
        assert repos.searches.workloads_like("%", limit=5) == ()
        assert repos.searches.known([("w1", "t"), ("w9", "t")])["w1", "t"].name == "conv2d_1"
        assert repos.searches.known([]) == {}
        record = repos.searches.record(ids[0])
        assert record is not None
        assert [cost for _, cost in repos.searches.best_over_time(record)] == [3.0, 2.0, 1.0]
        assert repos.searches.record("rec_none") is None
        assert repos.searches.targets() == repos.searches.device_models() == ()


def test_old_sessions_are_forgotten(uow: UnitOfWork) -> None:
    with uow.write() as repos:
        for number, (name, valid_sec) in enumerate(
            (("s", -100.0), ("s", 100.0), ("other", -100.0), ("s", None))
        ):
            repos.api_keys.add(
                key_id=f"{number:016}", name=name, secret_sha256="0" * 64, scopes=["x"], valid_sec=valid_sec
            )
        assert repos.api_keys.forget_expired(["s"], 200.0) == 0
        assert repos.api_keys.forget_expired(["s"], 50.0) == 1
        assert [key.name for key in repos.api_keys.list()] != []
        assert len(repos.api_keys.list()) == 3
