"""The command against the real API: its output and its exit codes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import onnx_models
import pytest

from tunefarm.client import Client
from tunefarm_tuning.records.record import load_records

AT_RANDOM = ("--tuner", "random")
"""A search of minutes that is not about the tuner: one that learns takes most of the processor meanwhile."""


def parsed(run: Any, *arguments: object) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_tune_and_look_at_everything(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx", tasks=2, failing=0.2)
    result = run("tune", model_file, "--trials", "16", "--seed", "3", "--output", tmp_path / "out", "--json")
    tuned = json.loads(result.stdout)
    assert tuned["job"]["state"] == "succeeded"
    assert tuned["job"]["seed"] == 3
    assert sum(tuned["outcomes"].values()) == 16
    assert Path(tuned["artifact"]).name == "net.tunefarm"
    assert json.loads(Path(tuned["report_file"]).read_text()) == tuned["report"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "net.report.html", "net.report.json", "net.tunefarm",
    ]  # fmt: skip
    assert "Tuning report" in Path(tuned["report_page"]).read_text()
    assert [line.split()[0] for line in result.stderr.splitlines()][-2:] == ["compile", "verify"]
    assert f"job {tuned['job']['id']}; " in result.stderr

    job_id, model_id = tuned["job"]["id"], tuned["job"]["model_id"]
    named = tmp_path / "again" / "recogniser.tunefarm"
    human = run("tune", model_file, "--trials", "4", "-o", named, "--no-other-shapes").stdout
    assert "kernels tuned              2 of 2" in human
    assert "trials                     4: " in human
    assert f"{named}  " in human
    assert sorted(path.name for path in named.parent.iterdir()) == [
        "recogniser.report.html", "recogniser.report.json", "recogniser.tunefarm",
    ]  # fmt: skip

    later, first = parsed(run, "jobs", "list")
    assert first["id"] == job_id
    assert [job["options"]["other_shapes"] for job in (first, later)] == [True, False]
    for job, refuses in ((first, False), (later, True)):
        assert ("other shapes no code for them\n" in run("jobs", "show", job["id"]).stdout) is refuses
    assert job_id in run("jobs", "list", "--state", "succeeded").stdout
    assert parsed(run, "jobs", "show", job_id)["trials"] == 16
    assert "search ended the limit of trials was reached" in run("jobs", "show", job_id).stdout
    assert [task["weight"] for task in parsed(run, "jobs", "tasks", job_id)] == [1, 2]
    listed = run("jobs", "tasks", job_id).stdout
    assert "matmul_1" in listed
    assert "FLOP/s" in listed
    assert "of peak" in listed
    assert all(task["roofline"]["share_of_peak"] is None for task in parsed(run, "jobs", "tasks", job_id))
    trials = [json.loads(line) for line in run("jobs", "trials", job_id, "--json").stdout.splitlines()]
    assert len(trials) == 16
    cut = run("jobs", "trials", job_id, "--json", "--limit", 5)
    assert len(cut.stdout.splitlines()) == 5
    assert "only the first 5 are listed: --limit 10 lists more" in cut.stderr
    failed = run("jobs", "trials", job_id, "--failed", "--json").stdout.splitlines()
    assert len(failed) == sum(t["outcome"] != "ok" for t in trials) > 0
    assert "run-" in run("jobs", "trials", job_id, "--failed").stdout
    assert parsed(run, "jobs", "report", job_id) == tuned["report"]
    told = run("jobs", "report", job_id).stdout
    assert "How to do it again\n1. The tuned file, with this SHA-256.\n" in told
    assert all(step["code"].splitlines()[0] in told for step in tuned["report"]["reproduce"]["steps"])
    assert all(f"note: {caveat}\n" in told for caveat in tuned["report"]["reproduce"]["caveats"])
    assert "How to do it again" not in human
    page = tmp_path / "again.html"
    assert parsed(run, "jobs", "report", job_id, "--html", page) == {"report_page": str(page)}
    assert page.read_text() == Path(tuned["report_page"]).read_text()
    watched = run("jobs", "watch", job_id)
    assert "succeeded" in watched.stdout
    third = tmp_path / "third" / "x.tunefarm"
    assert parsed(run, "jobs", "artifact", job_id, "-o", third)["artifact"] == str(third)
    clash = run("jobs", "artifact", job_id, "-o", third, "--name", "y.tunefarm", code=2)
    assert "leave --name out" in clash.stderr
    fetched = parsed(run, "jobs", "artifact", job_id, "-o", third.parent, "--name", "x.tunefarm")
    assert Path(fetched["artifact"]).read_bytes() == Path(tuned["artifact"]).read_bytes()

    assert [m["id"] for m in parsed(run, "models", "list")] == [model_id]
    assert "net" in run("models", "list").stdout
    assert "2 MatMul" in run("models", "show", model_id).stdout
    assert len(parsed(run, "models", "tasks", model_id)) == 2
    assert "matmul_0" in run("models", "tasks", model_id).stdout

    listed = run("records", "list", "--json", "--limit", "5").stdout.splitlines()
    assert len(listed) == 5
    best = [json.loads(line) for line in run("records", "best", "--json").stdout.splitlines()]
    assert {r["workload_key"] for r in best} == {
        t["workload_key"] for t in parsed(run, "jobs", "tasks", job_id)
    }
    assert {r["kernel"] for r in best} == {"matmul_0", "matmul_1"}
    table = run("records", "best").stdout
    assert "replay-cpu" in table
    assert [line.split()[:3] for line in table.splitlines() if "matmul" in line] == [
        [record["kernel"], "1×8", "float32"] for record in best
    ]
    exported = tmp_path / "records.jsonl"
    run("records", "export", "--job", job_id, "-o", exported)
    assert len(list(load_records(exported))) == 16
    run("records", "export", "--best", "-o", exported)
    assert {r.cost_sec for r in load_records(exported)} == {r["cost_sec"] for r in best}

    assert parsed(run, "models", "delete", model_id) == {"id": model_id, "state": "deleted"}
    assert "not-found" not in run("jobs", "show", job_id).output
    run("models", "show", model_id, code=3)


def test_compile_takes_what_is_on_record(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx", tasks=2)
    run("tune", model_file, "--trials", "8", "-o", tmp_path / "first")
    result = run("compile", model_file, "-o", tmp_path / "out", "--tag", "Quick", "--note", "a try", "--json")
    compiled = json.loads(result.stdout)
    assert (compiled["job"]["state"], compiled["job"]["stop_reason"]) == ("succeeded", "no-search")
    assert compiled["job"]["trials"] == 0
    assert (compiled["job"]["tags"], compiled["job"]["note"]) == (["quick"], "a try")
    assert Path(compiled["artifact"]).is_file()
    assert "no search" in result.stderr
    assert run("compile", model_file, "--detach").stdout.startswith("job_")
    assert "no such option" in run("compile", model_file, "--minutes", "1", code=2).output.lower()
    assert "no pool 'nowhere'" in run("compile", model_file, "--device-key", "nowhere", code=2).output


def test_weights_in_other_files_are_uploaded_with_the_model(run: Any, tmp_path: Path) -> None:
    parted, whole = tmp_path / "net" / "mlp.onnx", tmp_path / "whole.onnx"
    parted.parent.mkdir()
    onnx.save(onnx_models.ORDINARY["mlp"](), parted, save_as_external_data=True, size_threshold=0)
    converted = parsed(run, "models", "convert", parted, whole)
    assert (converted["path"], converted["size_bytes"]) == (str(whole), whole.stat().st_size)
    result = run("models", "upload", parted, "--no-wait", "--json")
    uploaded = json.loads(result.stdout)
    assert (uploaded["name"], uploaded["sha256"]) == ("mlp", sha256(whole.read_bytes()).hexdigest())
    (beside,) = {file.name for file in parted.parent.iterdir()} - {parted.name}
    note = " ".join(result.stderr.split())
    assert f"its weights, which are in other files ({beside}), are uploaded with it" in note
    for file in set(parted.parent.iterdir()) - {parted}:
        file.unlink()
    assert "external-data" in run("tune", parted, "--trials", "8", "-o", tmp_path, "--json", code=2).stdout


def test_upload(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx")
    uploaded = parsed(run, "models", "upload", model_file, "--name", "mine", "--shape", "x=2,8")
    assert (uploaded["name"], uploaded["state"], uploaded["shapes"]) == ("mine", "ready", {"x": [2, 8]})
    again = run("models", "upload", model_file, "--name", "yours", "--shape", "x=2,8")
    assert "the farm already has this file as mine@1: the name yours is not used" in again.stderr
    bound = parsed(run, "models", "upload", model_file, "--value", "sr=16000", "--value", "scales=1,2.5")
    assert (bound["values"], bound["id"] != uploaded["id"]) == ({"sr": 16000, "scales": [1, 2.5]}, True)
    assert (
        "is not of the form name=16000"
        in run("models", "upload", model_file, "--value", "sr=fast", code=2).stderr
    )
    labels = ("--tag", "nightly", "--tag", "edge", "--note", "from the lab")
    labelled = parsed(run, "models", "upload", model_file, "--shape", "x=3,8", *labels)
    assert (labelled["tags"], labelled["note"]) == (["nightly", "edge"], "from the lab")
    other = parsed(run, "models", "bind", uploaded["id"], "--shape", "x=4,8")
    assert (other["name"], other["state"], other["shapes"]) == ("mine", "ready", {"x": [4, 8]})
    assert "bad-shape" in run("models", "bind", uploaded["id"], "--shape", "x=4,", "--json", code=2).stdout
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"\x12\x03bad")
    result = run("models", "upload", bad, "--json", code=2)
    assert json.loads(result.stdout)["error"]["code"] == "invalid-onnx"
    assert "Traceback" not in result.output


def test_what_can_be_wrong(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx")
    empty = tmp_path / "empty.onnx"
    empty.touch()
    assert "no such file" in run("tune", tmp_path / "none.onnx", code=2).stderr
    assert "empty" in run("tune", empty, code=2).stderr
    for option in ("--trials", "--seconds", "--minutes", "--search-minutes", "--patience"):
        assert "above zero" in run("tune", model_file, option, "0", code=2).stderr
    endless = run("tune", model_file, "--minutes", "1e400", code=2).stderr
    assert "--minutes must be a number above zero, not inf" in endless
    assert "--quick and --minutes" in run("tune", model_file, "--quick", "--minutes", "2", code=2).stderr
    assert "job-seconds" in run("tune", model_file, "--quick", "--job-seconds", "30", code=2).stderr
    assert "unknown" not in run("tune", model_file, "--shape", "x", code=2).stderr
    assert "pool" in run("tune", model_file, "--trials", "4", "--device-key", "poll", code=2).stderr
    assert "xgb" in run("tune", model_file, "--trials", "4", "--tuner", "xgp", code=2).stderr
    run("tune", model_file, "--trials", "4", "--target", "llvmm", code=2)
    state = run("jobs", "list", "--state", "lost", code=2).stderr
    assert "error: state must be 'queued', 'extracting', " in state
    run("jobs", "show", "job_none", code=3)
    run("jobs", "artifact", "job_none", code=3)
    run("models", "list", TUNEFARM_API_KEY="tfk_wrong", code=5)
    key_file = tmp_path / "key"
    key_file.write_text(farm.new_key("read"))
    run("models", "list", "--api-key-file", key_file, TUNEFARM_API_KEY=None)
    run("models", "upload", model_file, "--api-key-file", key_file, TUNEFARM_API_KEY=None, code=5)
    assert not list(tmp_path.glob("*.tunefarm"))


def test_a_typo_costs_no_upload(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx")
    for option, value in (
        ("--device-key", "poll"),
        ("--tag", "two words"),
        ("--note", "n" * 4001),
        ("--tuner", "xgp"),
        ("--target", "llvmm"),
        ("--seed", "-1"),
        ("--min-gain", "2"),
    ):
        result = run("tune", model_file, "--trials", "4", option, value, code=2)
        assert "upload" not in result.stderr
    assert parsed(run, "models", "list") == []


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("net.onnx", "this is a file, but it must be a folder"),
        ("net.onnx/out", "files cannot be written into this folder: Not a directory"),
        ("/proc/tunefarm", "files cannot be written into this folder: "),
        ("/proc", "files cannot be written into this folder: "),
    ],
)
def test_a_folder_that_cannot_be_written_costs_no_upload(
    folder: str, reason: str, run: Any, farm: Any, tmp_path: Path
) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx")
    result = run("tune", model_file, "--trials", "4", "--output", tmp_path / folder, "--json", code=2)
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "bad-output"
    assert error["message"].startswith(f"--output {tmp_path / folder}: {reason}")
    assert parsed(run, "models", "list") == []
    run("tune", model_file, "--trials", "4", "--output", model_file, "--detach")  # writes nothing
    told = run("tune", model_file, "--trials", "4", "--output", "net.tunefarm", "--detach").stderr
    assert "`tunefarm jobs artifact JOB -o net.tunefarm` does" in " ".join(told.split())


def test_a_detached_job_is_paused_and_resumed(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx", trial_sec=0.05)
    started = parsed(run, "tune", model_file, *AT_RANDOM, "--minutes", "10", "--priority", "low", "--detach")[
        "job"
    ]
    job_id = started["id"]
    assert started["priority"] == -10
    assert parsed(run, "jobs", "change", job_id, "--priority", "7")["priority"] == 7
    budget = parsed(run, "jobs", "change", job_id, "--minutes", "20", "--trials", "9000")["budget"]
    assert (budget["job_sec"], budget["trials"]) == (1200.0, 9000)
    budget = parsed(run, "jobs", "change", job_id, "--search-minutes", "2")["budget"]
    assert (budget["job_sec"], budget["wall_sec"]) == (1200.0, 120.0)
    assert "above zero" in run("jobs", "change", job_id, "--trials", "0", code=2).stderr
    assert "from -100 to 100" in run("jobs", "change", job_id, "--priority", "500", code=2).stderr
    assert parsed(run, "jobs", "pause", job_id)["state"] == "paused"
    assert run("jobs", "show", job_id).stdout.startswith(f"{job_id}  paused")
    assert parsed(run, "jobs", "resume", job_id)["state"] in ("queued", "tuning")
    parsed(run, "jobs", "cancel", job_id)
    assert "it cannot" in run("jobs", "resume", job_id, code=3).stderr
    assert "only a failed job" in run("jobs", "retry", job_id, code=3).stderr


@pytest.mark.exhaustive
def test_a_quick_job_has_a_minute(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx", trial_sec=0.05)
    for options, job_sec in (
        (["--quick"], 60.0),
        ([], 600.0),
        (["--minutes", "1", "--job-seconds", "30"], 90.0),
    ):
        job = parsed(run, "tune", model_file, *options, "--detach")["job"]
        assert job["budget"]["job_sec"] == job_sec
        assert "for the whole job" in run("jobs", "show", job["id"]).stdout
        run("jobs", "cancel", job["id"])


@pytest.mark.exhaustive
def test_a_detached_job_is_cancelled(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx", trial_sec=0.05)
    job_id = parsed(run, "tune", model_file, *AT_RANDOM, "--minutes", "10", "--detach")["job"]["id"]
    assert run("tune", model_file, *AT_RANDOM, "--minutes", "10", "--detach").stdout.startswith("job_")
    assert parsed(run, "jobs", "cancel", job_id)["state"] == "cancelled"
    assert "was cancelled" in run("jobs", "watch", job_id, code=1).stderr
    run("jobs", "artifact", job_id, code=3)
    run("jobs", "artifact", job_id, "--so-far", code=3)
    best = parsed(run, "jobs", "artifact", job_id, "--now", "-o", tmp_path / "best")
    assert best["job_id"] != job_id
    assert Path(best["artifact"]).is_file()


@pytest.mark.exhaustive
def test_an_artifact_of_a_job_that_searches(run: Any, farm: Any, tmp_path: Path) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx", trial_sec=0.02)
    job_id = parsed(run, "tune", model_file, *AT_RANDOM, "--minutes", "10", "--detach")["job"]["id"]
    so_far = parsed(run, "jobs", "artifact", job_id, "--now", "-o", tmp_path / "so-far")
    assert Path(so_far["artifact"]).is_file()
    assert parsed(run, "jobs", "show", job_id)["state"] in ("queued", "extracting", "tuning")
    ready = parsed(run, "jobs", "artifact", job_id, "--so-far", "-o", tmp_path / "ready")
    assert Path(ready["artifact"]).read_bytes() == Path(so_far["artifact"]).read_bytes()
    assert parsed(run, "jobs", "show", job_id)["draft"]["size_bytes"] == ready["size_bytes"]
    assert "give only one of them" in run("jobs", "artifact", job_id, "--so-far", "--now", code=2).stderr
    finished = parsed(run, "jobs", "finish", job_id)
    assert (finished["state"], finished["stop_reason"]) == ("succeeded", "finished")
    own = parsed(run, "jobs", "artifact", job_id, "--now", "-o", tmp_path / "own")
    assert own["job_id"] == job_id
    final = parsed(run, "jobs", "artifact", job_id, "--so-far", "-o", tmp_path / "final")
    assert "draft" not in final
    assert Path(final["artifact"]).read_bytes() == Path(own["artifact"]).read_bytes()


@pytest.mark.exhaustive
def test_a_name_with_slashes_and_a_version(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    """It stands for its model in each command, and its artifact lies in the folder that was named."""
    file = farm.write_model(tmp_path / "net.onnx", tasks=1)
    out = tmp_path / "out"
    job = parsed(run, "tune", file, "--name", "team/net", "--trials", "4", "-o", out)["job"]
    assert sorted(path.suffix for path in out.rglob("*") if path.is_file()) == [".html", ".json", ".tunefarm"]
    assert {path.parent for path in out.rglob("*") if path.is_file()} == {out}
    for name in ("team/net", "team/net@1"):
        assert parsed(run, "models", "show", name)["id"] == job["model_id"]
        assert [listed["id"] for listed in parsed(run, "jobs", "list", "--model", name)] == [job["id"]]
        assert parsed(run, "jobs", "show", name)["id"] == job["id"]
        assert client.models.get(name).id == job["model_id"]
        assert client.samples.list(name) == ()
        assert [listed.id for listed in client.jobs.list(model_id=name).items] == [job["id"]]
    sweep = client.sweeps.create(["team/net@1"], trials=4)
    assert sweep.cells[0].model_id == job["model_id"]
    assert "there is no model team/net@2" in run("models", "show", "team/net@2", code=3).stderr
    client.sweeps.wait(sweep.id, timeout_sec=120)
    run("models", "change", "team/net@1", "--tag", "ocr")
    run("models", "delete", "team/net")
    assert list(client.models.all()) == []
