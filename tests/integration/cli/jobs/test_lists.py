"""``tunefarm jobs list|change`` and ``tunefarm models list|change``: tags, notes, search and orders, against the real API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import Client


@pytest.mark.exhaustive
def test_tags_notes_and_orders(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    first, second = (
        client.tune(
            farm.write_model(tmp_path / f"{name}.onnx", tasks=tasks), trials=4, tags=tags, note="a note"
        )
        for name, tasks, tags in (("ocr", 1, ["nightly"]), ("asr", 2, []))
    )
    for job in (first, second):
        job.wait(poll_sec=0.05, timeout_sec=120)

    def listed(*options: str) -> list[str]:
        return [job["id"] for job in json.loads(run("jobs", "list", "--json", *options).stdout)]

    assert listed() == [second.id, first.id]
    assert listed("--sort", "oldest") == listed("--sort", "model")[::-1] == [first.id, second.id]
    assert listed("--tag", "nightly") == listed("--search", "OCR") == [first.id]
    changed = run("jobs", "change", second.id, "--tag", "v1.2", "--tag", "asr", "--note", "two\nlines").stdout
    assert "v1.2, asr" in changed
    assert "lines" in changed
    run("jobs", "change", second.id, "--untag", "V1.2", "--tag", "nightly")
    assert client.jobs.get(second.id).tags == ("asr", "nightly")
    assert listed("--tag", "nightly", "--tag", "asr") == [second.id]
    assert [job.id for job in client.jobs.all(tags=["nightly"], order="oldest")] == [first.id, second.id]
    assert "asr, nightly" in run("jobs", "list").stdout
    assert "is not a tag" in run("jobs", "change", second.id, "--tag", "two words", code=2).stderr
    run("jobs", "list", "--sort", "fastest", code=2)

    model_id = first.job.model_id
    assert "tags: scanner" in run("models", "change", model_id, "--tag", "Scanner", "--note", "from A").stdout
    for options in (("--tag", "scanner"), ("--search", "from a"), ("--sort", "name", "--search", "ocr")):
        models = json.loads(run("models", "list", "--json", *options).stdout)
        assert [model["id"] for model in models] == [model_id]
    assert client.models.change(model_id, tags=[], note="").tags == ()


def test_an_artifact_is_measured_again(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx", tasks=2), trials=4)
    job.wait(poll_sec=0.05, timeout_sec=120)
    assert "2.00×" in run("jobs", "measure", job.id).stdout
    measurements = client.jobs.measure(job.id, timeout_sec=60)
    assert [taken.shown for taken in measurements.items] == [False, True]
    assert measurements.items[1].seconds["tuned"] == client.jobs.get(job.id).network_latency_sec == 0.002
    as_json = json.loads(run("jobs", "measure", job.id, "--no-wait", "--json").stdout)
    assert as_json["state"] in ("waiting", "measuring", "idle")
    assert "1.50×" in run("jobs", "list").stdout
    assert client.jobs.report(job.id)["measurements"][0]["seconds"]["untuned"] == 0.004
    other = client.tune(farm.write_model(tmp_path / "other.onnx", tasks=1, trial_sec=0.5), trials=100)
    assert "has no artifact" in run("jobs", "measure", other.id, code=3).stderr
    other.cancel()


def test_models_have_names_and_versions(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    first, second = (
        client.models.upload(farm.write_model(tmp_path / f"{tasks}.onnx", tasks=tasks), name="ocr-rec")
        for tasks in (1, 2)
    )
    for model in (first, second):
        client.models.wait(model.id)
    assert (first.named, second.named) == ("ocr-rec@1", "ocr-rec@2")
    assert "ocr-rec@2" in run("models", "list").stdout
    for text, model in (("ocr-rec@1", first), ("ocr-rec@2", second), ("ocr-rec", second)):
        assert json.loads(run("models", "show", text, "--json").stdout)["id"] == model.id
        assert client.models.get(text).id == model.id
    job = client.jobs.create("ocr-rec@1", trials=4)
    assert job.model_id == first.id
    assert json.loads(run("jobs", "show", "ocr-rec@1", "--json").stdout)["id"] == job.id
    assert [
        listed["id"] for listed in json.loads(run("jobs", "list", "--model", "ocr-rec@1", "--json").stdout)
    ] == [job.id]
    run("models", "show", "ocr-rec@3", code=3)
    with farm.services.uow.write() as repos:
        refused = repos.models.add(name="open", sha256="0" * 64, size_bytes=1)
        repos.models.set_failed(
            refused.id,
            {
                "kind": "InvalidModelError",
                "code": "unknown-dimension",
                "message": "n is not fixed",
                "fields": {},
            },
        )
    assert "unknown-dimension" in run("models", "list").stdout, "the list says why"
    client.jobs.cancel(job.id)

    of_second = client.jobs.create("ocr-rec@2", trials=4)
    same = client.models.upload(farm.write_model(tmp_path / "same.onnx", tasks=3), name="ocr-rec@2")
    client.models.wait(same.id)
    assert client.models.get("ocr-rec@2").id == same.id, "a name comes before a version"
    assert json.loads(run("models", "show", "ocr-rec@2", "--json").stdout)["id"] == same.id
    run("jobs", "show", "ocr-rec@2", code=3)
    job = client.jobs.create("ocr-rec@2", trials=4)
    assert job.model_id == same.id
    assert json.loads(run("jobs", "show", "ocr-rec@2", "--json").stdout)["id"] == job.id
    for started in (of_second, job):
        client.jobs.cancel(started.id)


@pytest.mark.exhaustive
def test_the_libraries_that_may_compute_kernels_are_shown(
    run: Any, farm: Any, client: Client, tmp_path: Path
) -> None:
    target = "llvm -libs=dnnl"
    job = client.tune(farm.write_model(tmp_path / "ocr.onnx", tasks=1), trials=4, target=target)
    job.wait(poll_sec=0.05, timeout_sec=120)
    assert (job.job.model_name, job.job.target_key, job.job.target_text) == ("ocr", "llvm", target)
    assert job.job.summary()["target"] == target
    listed = run("jobs", "list").stdout
    assert target in listed
    assert "ocr" in listed
    assert target in run("jobs", "show", job.id).stdout
    again = client.jobs.again(job.id)
    client.job(again.id).wait(poll_sec=0.05, timeout_sec=120)
    sweep = client.sweeps.create([job.job.model_id], precisions=["as-model"], trials=4, target=target)
    client.sweeps.wait(sweep.id, poll_sec=0.05)
    (of_sweep,) = client.jobs.all(sweep_id=sweep.id)
    assert [client.jobs.get(job_id).target_text for job_id in (again.id, of_sweep.id)] == [target, target]
    comparison = client.jobs.compare([job.id, again.id])
    assert [compared.libraries for compared in comparison.jobs] == [("dnnl",), ("dnnl",)]
