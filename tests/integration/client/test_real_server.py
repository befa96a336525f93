"""The client against the real API: every answer is read, every problem becomes its error."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import (
    AuthenticationError,
    Client,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    JobCancelledError,
    ModelFailedError,
    NotFoundError,
)


def test_from_model_to_artifact(farm: Any, client: Client, tmp_path: Path) -> None:
    file = farm.write_model(tmp_path / "net.onnx", tasks=3, failing=0.2)
    sent: list[tuple[int, int]] = []
    job = client.tune(file, trials=24, seed=5, on_upload=lambda *bytes_: sent.append(bytes_))
    assert sent[-1] == (file.stat().st_size, file.stat().st_size)
    states: list[str] = []
    done = job.wait(lambda j: states.append(j.state), poll_sec=0.05, timeout_sec=120)
    assert states[-1] == "succeeded"
    assert (done.trials, done.seed, done.device_key, done.stop_reason) == (24, 5, "pool", "trials")
    assert done.progress.tasks_total == done.progress.tasks_with_record == 3
    assert done.best_latency_sec is not None
    assert done.artifact_id is not None
    assert done.finished_at is not None
    assert done.finished_at >= done.created_at

    files = job.download(tmp_path / "out")
    assert files.artifact.name == "net.tunefarm"
    assert json.loads(files.report.read_text()) == job.report()
    assert files.report_page.name.endswith(".report.html")
    assert job.id in files.report_page.read_text()

    tasks = job.tasks()
    assert [task.weight for task in tasks] == [1, 2, 3]
    assert sum(task.trials for task in tasks) == 24
    trials = list(job.trials())
    assert len(trials) == 24
    assert sum(sum(task.outcomes.values()) for task in tasks) == 24
    assert {t.outcome for t in trials} > {"ok"}
    assert all((t.cost_sec is None) == (t.outcome != "ok") for t in trials)
    assert len(list(job.records())) == 24
    events = job.events()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert job.events(after=events[-1].seq) == ()

    model = client.models.get(done.model_id)
    assert (model.state, model.name) == ("ready", "net")
    assert model.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert model.inputs[0].dtype == "float32"
    assert [m.id for m in client.models.all()] == [model.id]
    assert [j.id for j in client.jobs.all(model_id=model.id, state="succeeded")] == [job.id]
    assert len(client.models.tasks(model.id)) == 3
    best = client.records.list(workload_key=tasks[0].workload_key, outcome="ok", limit=1)
    assert len(best.items) == 1
    assert best.next_cursor is not None
    (device,) = client.devices.list()
    assert client.devices.get(device.id) == device
    assert device.state == "online"


def test_compiling_without_a_search(farm: Any, client: Client, tmp_path: Path) -> None:
    file = farm.write_model(tmp_path / "net.onnx", tasks=2)
    client.tune(file, trials=8).wait(poll_sec=0.05, timeout_sec=120)
    job = client.compile(file, priority="high", tags=["quick"], note="a try")
    done = job.wait(poll_sec=0.05, timeout_sec=120)
    assert (done.state, done.stop_reason, done.trials, done.priority) == ("succeeded", "no-search", 0, 10)
    assert (done.tags, done.note) == (("quick",), "a try")
    assert done.progress.tasks_with_record == 2
    assert not done.searches
    assert job.download(tmp_path / "out").artifact.is_file()
    with pytest.raises(TypeError, match="trials"):
        client.compile(file, trials=8)  # type: ignore[call-arg]
    with pytest.raises(InvalidRequestError) as caught:
        client.jobs.create(done.model_id, search=False, trials=8)
    assert caught.value.code == "invalid-budget"


def test_an_artifact_while_the_search_goes_on(farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx", trial_sec=0.02), seconds=600, tuner="random")
    so_far = job.compile_now()
    assert so_far.id != job.id
    assert so_far.wait(poll_sec=0.05, timeout_sec=120).state == "succeeded"
    assert so_far.download(tmp_path / "out").artifact.is_file()
    assert not job.refresh().is_finished
    job.finish()
    done = job.wait(poll_sec=0.05, timeout_sec=120)
    assert (done.state, done.stop_reason) == ("succeeded", "finished")
    assert job.download(tmp_path / "best").artifact.is_file()


def test_the_same_model_is_uploaded_once(farm: Any, client: Client, tmp_path: Path) -> None:
    file = farm.write_model(tmp_path / "net.onnx")
    first = client.models.upload(file)
    assert client.models.upload(file, name="other").id == first.id
    other = client.models.upload(file, shapes={"x": (2, 8)})
    assert other.id != first.id
    assert client.models.wait(other.id, timeout_sec=60).shapes == {"x": (2, 8)}


def test_one_key_is_one_job(farm: Any, client: Client, tmp_path: Path) -> None:
    model = client.models.upload(farm.write_model(tmp_path / "net.onnx"))
    client.models.wait(model.id, timeout_sec=60)
    first = client.jobs.create(model.id, trials=8, idempotency_key="k")
    assert client.jobs.create(model.id, trials=8, idempotency_key="k").id == first.id
    with pytest.raises(ConflictError) as caught:
        client.jobs.create(model.id, trials=9, idempotency_key="k")
    assert caught.value.code == "idempotency-key-reused"
    assert client.jobs.create(model.id, trials=8).id != first.id


def test_cancelling(farm: Any, client: Client, tmp_path: Path) -> None:
    file = farm.write_model(tmp_path / "net.onnx", trial_sec=0.05)
    job = client.tune(file, seconds=600, options={"round_size": 4})
    assert job.job.budget["wall_sec"] == 600.0
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait(timeout_sec=60, poll_sec=0.05)
    assert job.cancel().state == "cancelled"
    with pytest.raises(ConflictError) as caught:
        job.download(tmp_path / "out")
    assert caught.value.code == "no-artifact"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.matrix(every=2, each_value=False)
def test_pausing(farm: Any, client: Client, tmp_path: Path) -> None:
    file = farm.write_model(tmp_path / "net.onnx", tasks=1, trial_sec=0.02)
    job = client.tune(file, trials=64, tuner="random", priority=-3, options={"round_size": 4})
    assert job.job.priority == -3
    assert job.change(priority="high").priority == 10
    assert job.pause().state == job.refresh().state == "paused"
    assert not job.job.is_finished
    assert job.resume().state in ("queued", "tuning", "compiling")
    assert job.change(trials=72).budget["trials"] == 72
    assert job.retry().state != "failed"  # it goes on as it does
    assert job.wait(timeout_sec=120, poll_sec=0.05).trials == 72
    for order in (job.pause, job.resume, job.retry, lambda: job.change(trials=80)):
        with pytest.raises(ConflictError) as late:
            order()
        assert late.value.code == "job-state"


def test_what_the_server_refuses(farm: Any, client: Client, tmp_path: Path) -> None:
    empty, text, odd = tmp_path / "empty", tmp_path / "text", tmp_path / "odd"
    empty.write_bytes(b"")
    text.write_text("hello")
    odd.write_bytes(b"\x08nonsense")
    for file, code in ((empty, "empty-file"), (text, "not-protobuf")):
        with pytest.raises(InvalidRequestError) as refused:
            client.models.upload(file)
        assert refused.value.code == code
    with pytest.raises(ModelFailedError) as failed:
        client.tune(odd, trials=8)
    assert failed.value.code == "invalid-onnx"

    model = client.models.upload(farm.write_model(tmp_path / "net.onnx"))
    client.models.wait(model.id, timeout_sec=60)
    for wrong, code in (
        ({"trials": 1 << 31}, "invalid-budget"),
        ({"trials": 8, "device_key": "poll"}, "unknown-device-key"),
        ({"trials": 8, "tuner": "xgp"}, "unknown-tuner"),
        ({"trials": 8, "target": "llvmm"}, "unknown-target"),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            client.jobs.create(model.id, **wrong)
        assert refused.value.code == code
        assert refused.value.status == 422
    client.models.delete(model.id)
    for call in (client.models.get, client.models.delete, client.models.tasks):
        with pytest.raises(NotFoundError):
            call(model.id)
    with pytest.raises(NotFoundError) as deleted:
        client.jobs.create(model.id, trials=8)
    assert deleted.value.code == "model-deleted"
    with pytest.raises(NotFoundError):
        client.jobs.save_report("job_nothing", tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()
    for missing in (client.jobs.get, client.jobs.cancel, client.jobs.report, client.devices.get):
        with pytest.raises(NotFoundError):
            missing("nothing_1")


def test_keys(farm: Any, tmp_path: Path) -> None:
    with Client(farm.url, "tfk_wrong") as stranger, pytest.raises(AuthenticationError):
        stranger.models.list()
    with Client(farm.url, farm.new_key("read")) as reader:
        assert reader.models.list().items == ()
        with pytest.raises(ForbiddenError):
            reader.models.upload(farm.write_model(tmp_path / "net.onnx"))


def test_over_the_limit(farm: Any, client: Client, tmp_path: Path) -> None:
    """The server refuses the file before it is sent; its answer gets through all the same."""
    limited = farm.services.settings.model_copy(update={"max_upload_bytes": 1 << 20})
    object.__setattr__(farm.services, "settings", limited)
    large = tmp_path / "large.onnx"
    large.write_bytes(b"\x08" * (16 << 20))
    with pytest.raises(InvalidRequestError) as refused:
        client.models.upload(large)
    assert (refused.value.status, refused.value.code) == (413, "too-large")
