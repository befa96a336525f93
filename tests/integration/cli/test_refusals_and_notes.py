"""What the command answers when it was asked for nothing, for the wrong kind of object, or for what it will not do."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import Client


@pytest.mark.parametrize("command", ["tune", "compile"])
def test_a_detached_job_says_that_it_downloads_nothing(
    command: str, run: Any, farm: Any, client: Client, tmp_path: Path
) -> None:
    model_file, folder = farm.write_model(tmp_path / "net.onnx"), tmp_path / "the results"
    terms = ("--trials", "4") if command == "tune" else ()
    result = run(command, model_file, *terms, "--detach", "-o", folder)
    advice = f"`tunefarm jobs artifact JOB -o {shlex.quote(str(folder))}` does, when the job has ended"
    assert f"warning: --detach downloads nothing: {advice}" in result.stderr
    assert "downloads nothing" not in run(command, model_file, *terms, "--detach").stderr
    assert not folder.exists()
    for job in client.jobs.all():
        client.job(job.id).wait()


def test_a_change_of_nothing_is_refused(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx"), trials=4)
    job.wait()
    for group, item in (("jobs", job.id), ("models", job.job.model_id)):
        error = json.loads(run(group, "change", item, "--json", code=2).stdout)["error"]
        assert error["code"] == "invalid-request"
        assert error["message"].startswith("nothing to change: ")
        run(group, "change", item, "--note", "")


def test_an_id_of_another_kind_is_named_as_such(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx"), trials=4)
    job.wait()
    (device,) = client.devices.list()
    sweep = "swp_" + 26 * "0"
    for group, item, message in (
        ("jobs", job.job.model_id, f"{job.job.model_id} is the id of a model, not of a job"),
        ("models", job.id, f"{job.id} is the id of a job, not of a model"),
        ("sweeps", device.id, f"{device.id} is the id of a device, not of a sweep"),
        ("device", sweep, f"{sweep} is the id of a sweep, not of a device"),
        ("jobs", "", "the name or id of a job is empty"),
        ("device", " ", "the name or id of a device is empty"),
    ):
        assert f"error: {message}\n" in run(group, "show", item, code=2).stderr


def test_a_model_shows_its_bound_values_and_the_lines_of_its_note(
    run: Any, farm: Any, tmp_path: Path
) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx")
    uploaded = json.loads(run("models", "upload", model_file, "--value", "sr=16000", "--json").stdout)
    assert "\ninput sr is bound to 16000\n" in run("models", "show", uploaded["id"]).stdout
    changed = run("models", "change", uploaded["id"], "--note", "first line\nsecond line").stdout
    assert "\nfirst line\nsecond line\n" in changed


def test_what_is_plainly_no_model_is_refused_before_the_upload(run: Any, tmp_path: Path) -> None:
    """No request is sent: there is no server at this address."""
    for command in (("tune", "--trials", "4"), ("compile",), ("models", "upload")):
        refused = run(*command, "/etc/passwd", "--json", code=2, TUNEFARM_URL="http://127.0.0.1:9")
        error = json.loads(refused.stdout)["error"]
        assert error["code"] == "not-protobuf"
        assert error["message"].startswith("this is not an ONNX file, nor a TFLite file: ")


def test_several_files_are_uploaded_and_each_is_told(
    run: Any, farm: Any, client: Client, tmp_path: Path
) -> None:
    good, other = (farm.write_model(tmp_path / f"{name}.onnx", seed=seed) for seed, name in enumerate("ab"))
    text, broken = tmp_path / "text.onnx", tmp_path / "broken.onnx"
    text.write_bytes(b"no network at all")
    broken.write_bytes(b"\x12\x03bad")
    result = run(
        "models", "upload", text, good, broken, other, "--shape", "b.onnx:x=2,8", "--tag", "new", code=1
    )
    models = {model.name: model for model in client.models.all(state="ready")}
    assert {name: (model.raw["shapes"], model.tags) for name, model in models.items()} == {
        "a": ({}, ("new",)),
        "b": ({"x": [2, 8]}, ("new",)),
    }
    assert result.stdout.splitlines() == [
        f"{models[name].id}  {name}@1  ready  {path}" for name, path in (("a", good), ("b", other))
    ]
    assert f"warning: {text}: this is not an ONNX file" in result.stderr
    assert f"warning: {broken}: " in result.stderr
    told = json.loads(run("models", "upload", text, good, other, "--json", code=1).stdout)
    assert [model["name"] for model in told["models"]] == ["a", "b"]
    assert [(file["name"], file["code"]) for file in told["refused"]] == [("text.onnx", "not-protobuf")]
    assert json.loads(run("models", "upload", good, other, "--json").stdout)["refused"] == []
    assert "--name is for a single file" in run("models", "upload", good, other, "--name", "x", code=2).stderr
    assert "there is no such file" in run("models", "upload", good, tmp_path / "none.onnx", code=2).stderr


@pytest.mark.exhaustive
def test_a_job_that_has_ended_cannot_be_paused(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx"), trials=4)
    job.wait()
    assert (
        "error: the job has succeeded: it cannot be paused\n" in run("jobs", "pause", job.id, code=3).stderr
    )
