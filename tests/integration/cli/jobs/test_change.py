"""``tunefarm jobs again``: by a schedule, and past those that are refused; against the real API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import Client

PATIENCE_SEC = 120.0


def parsed(run: Any, *arguments: object) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


@pytest.mark.exhaustive
def test_jobs_run_again_by_a_schedule(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    first, second = (
        parsed(
            run,
            "tune",
            farm.write_model(tmp_path / f"{name}.onnx", tasks=1, seed=seed),
            "--trials",
            "4",
            "--tag",
            "Nightly",
            "-o",
            tmp_path / "out",
        )["job"]["id"]
        for seed, name in enumerate("ab")
    )
    kept = run("jobs", "again", "--tag", "nightly", "--only-if-changed")
    assert kept.stdout.strip() == "no job was started"
    assert "2 artifacts made by the farm's present versions" in kept.stderr
    started = run("jobs", "again", "--tag", "nightly").stdout.split()
    assert len({first, second, *started}) == 4
    for job_id in started:
        client.job(job_id).wait(timeout_sec=PATIENCE_SEC, poll_sec=0.05, progress_bar=False)
    later = parsed(run, "jobs", "again", "--tag", "nightly")["jobs"]
    assert len(later) == 2, "each chain of runs once"
    assert {job["options"]["again"] for job in later} == {first, second}
    for job in later:
        client.job(job["id"]).wait(timeout_sec=PATIENCE_SEC, poll_sec=0.05, progress_bar=False)
    assert parsed(run, "jobs", "again", first[-8:], "--only-if-changed") == {
        "jobs": [],
        "unchanged": [next(job["id"] for job in later if job["options"]["again"] == first)],
        "refused": [],
    }
    client.models.delete(later[0]["model_id"])
    refused = run("jobs", "again", "--tag", "nightly", code=1)
    (rerun,) = refused.stdout.split()
    assert client.jobs.get(rerun).model_id == later[1]["model_id"], "the others run"
    assert f"warning: {later[0]['id']}: " in refused.stderr
    client.job(rerun).wait(timeout_sec=PATIENCE_SEC, poll_sec=0.05, progress_bar=False)
    told = json.loads(run("jobs", "again", "--tag", "nightly", "--json", code=1).stdout)
    assert [job["model_id"] for job in told["jobs"]] == [later[1]["model_id"]]
    assert [(job["job"], job["code"]) for job in told["refused"]] == [(later[0]["id"], "model-deleted")]
    assert "name jobs, or a tag" in run("jobs", "again", code=2).stderr
    unknown = run("jobs", "again", "--tag", "nigthly")
    assert "no job with the tag nigthly has ended" in unknown.stderr
    assert "name jobs, or a tag" in run("jobs", "again", first, "--tag", "nightly", code=2).stderr
    assert "there is no job nothing" in run("jobs", "again", "nothing", code=3).stderr
    assert run("jobs", "again", "--tag", "unused").stdout.strip() == "no job was started"
