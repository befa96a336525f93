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


@pytest.mark.exhaustive
def test_a_job_that_has_ended_cannot_be_paused(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx"), trials=4)
    job.wait()
    assert (
        "error: the job has succeeded: it cannot be paused\n" in run("jobs", "pause", job.id, code=3).stderr
    )
