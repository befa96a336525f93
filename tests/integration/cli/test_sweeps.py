"""`tunefarm tune` with several files, pools and precisions, and `tunefarm sweeps`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from replay_server import ReplayServer

from tunefarm.cli.sweep_run import _folders
from tunefarm.client import Client, SweepCell


def parsed(run: Any, *arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def test_files_and_precisions_are_one_sweep(
    run: Any, farm: ReplayServer, client: Client, tmp_path: Path
) -> None:
    files = [
        farm.write_model(tmp_path / f"{name}.onnx", tasks=1, seed=seed) for seed, name in enumerate("ab")
    ]
    out = tmp_path / "out"
    result = run(
        *("tune", *files, "--precision", "as-model,float16-weights", "--trials", 16, "--tuner", "random"),
        *("--shape", "b.onnx:x=2,8", "--tag", "Nightly", "-o", out),
    )
    (sweep,) = client.sweeps.all()
    assert (sweep.state, sweep.counts, sweep.tags) == ("ended", {"succeeded": 4}, ("nightly",))
    jobs = list(client.jobs.all())
    assert {job.trials for job in jobs} == {4}, "16 trials are shared by four jobs"
    assert {path.name for path in out.iterdir()} == {
        *(f"{name}-pool-{precision}" for name in "ab" for precision in ("as-model", "float16-weights")),
        "sweep.report.json",
        "sweep.report.html",
    }
    assert len(list(out.rglob("*.tunefarm"))) == 4
    report = json.loads((out / "sweep.report.json").read_text())
    assert [cell["state"] for cell in report["cells"]] == ["succeeded"] * 4
    assert "All jobs share the trials equally." in result.stdout
    assert "a · pool · as-model: succeeded" in result.stderr
    shapes = {model.name: model.raw["shapes"] for model in client.models.all()}
    assert shapes == {"a": {}, "b": {"x": [2, 8]}}

    shown = run("sweeps", "show", sweep.id[-8:]).stdout
    assert shown.count("succeeded") >= 4
    listed = run("sweeps", "list").stdout
    assert sweep.id in listed
    assert "a, b" in listed
    assert (sweep.model_names, sweep.models_text) == (("a", "b"), "a, b")
    assert len(parsed(run, "jobs", "list", "--sweep", sweep.id[-8:])) == 4
    assert parsed(run, "jobs", "list", "--sweep", sweep.id, "--state", "failed") == []
    assert "there is no sweep nothing" in run("jobs", "list", "--sweep", "nothing", code=3).stderr
    assert parsed(run, "sweeps", "report", sweep.id) == report
    run("sweeps", "report", sweep.id, "--html", tmp_path / "r.html")
    assert sweep.id in (tmp_path / "r.html").read_text()
    assert "there is no sweep nothing" in run("sweeps", "show", "nothing", code=3).stderr
    listed = run("jobs", "list", "--limit", 4)
    assert [word in listed.stdout.split() for word in ("precision", "float16-weights")] == [True, True]
    assert "only the first" not in listed.stderr
    assert "only the first 3 are listed: --limit 6 lists more" in run("jobs", "list", "-n", 3).stderr
    wild = {name: {"value": 2.0, "low": 0.01, "high": 40.0} for name in ("untuned", "onnxruntime")}
    with farm.services.uow.write() as repos:
        repos.jobs.set_numbers(
            jobs[0].id, network_latency_sec=0.25, speedups=wild, over_untuned=None, over_runtime=None
        )
    said = ("250 ms (disturbed)", "not known (ONNX Runtime)")
    tables = [
        run("sweeps", "show", sweep.id).stdout,
        run("jobs", "list").stdout,
        run("jobs", "compare", jobs[0].id, jobs[1].id).stdout,
    ]
    assert [[text in table for text in said] for table in tables] == [
        [True, True],
        [True, True],
        [True, False],
    ]


def test_a_refused_file_does_not_take_the_others_with_it(
    run: Any, farm: ReplayServer, client: Client, tmp_path: Path
) -> None:
    good = farm.write_model(tmp_path / "good.onnx", tasks=1)
    bad, worse = tmp_path / "bad.onnx", tmp_path / "worse.onnx"
    bad.write_bytes(b"\x12\x06broken")
    worse.write_bytes(b"no network at all")
    onnx.save(
        onnx_models.ORDINARY["mlp"](),
        tmp_path / "parted.onnx",
        save_as_external_data=True,
        size_threshold=0,
        location="w",
    )
    (tmp_path / "w").unlink()
    files = (bad, good, tmp_path / "parted.onnx", worse)
    result = run("tune", *files, "--trials", 8, "--tuner", "random", "-o", tmp_path / "out", code=1)
    (sweep,) = client.sweeps.all()
    cells = client.sweeps.get(sweep.id).cells
    assert [(cell.model_name, cell.state) for cell in cells] == [
        ("good", "succeeded"),
        ("bad.onnx", "refused"),
        ("parted.onnx", "refused"),
        ("worse.onnx", "refused"),
    ]
    assert len(list((tmp_path / "out").rglob("*.tunefarm"))) == 1
    assert "worse.onnx" in result.stderr
    assert parsed(run, "tune", bad, worse, "--trials", 8, code=2)["error"]["code"] == "empty-sweep"
    assert len(list(client.sweeps.all())) == 1


def test_pools_side_by_side_and_all_cancelled(
    run: Any, farm: ReplayServer, client: Client, tmp_path: Path
) -> None:
    farm.add_device("dev-2", "arm")
    file = farm.write_model(tmp_path / "net.onnx", tasks=2, trial_sec=0.05)
    started = run("tune", file, "--device-key", "pool,arm", "--minutes", 60, "--detach")
    sweep_id = started.stdout.strip()
    assert sweep_id.startswith("swp_")
    cells = client.sweeps.get(sweep_id).cells
    assert [cell.device_key for cell in cells] == ["pool", "arm"]
    assert {cell.budget["job_sec"] for cell in cells} == {3600.0}, "each pool has the whole hour"
    in_use = run("models", "delete", "net", code=3)
    assert sweep_id in in_use.stderr
    cancelled = run("sweeps", "cancel", sweep_id)
    assert "cancelled, 2 cancelled" in cancelled.stdout
    client.sweeps.wait(sweep_id, timeout_sec=60)
    assert {job.state for job in client.jobs.all()} == {"cancelled"}


def test_what_a_sweep_refuses(run: Any, farm: ReplayServer, client: Client, tmp_path: Path) -> None:
    a, b = (farm.write_model(tmp_path / f"{name}.onnx", seed=seed) for seed, name in enumerate("ab"))

    def refused(*arguments: object) -> str:
        code: str = parsed(run, "tune", *arguments, code=2)["error"]["code"]
        return code

    assert refused(a, tmp_path / "none.onnx") == "no-file"
    assert "this is a folder; give its files" in run("tune", tmp_path, code=2).stderr
    assert refused(a, b, "--name", "one") == "invalid-request"
    assert refused(a, b, "--output", tmp_path / "net.tunefarm") == "bad-output"
    assert refused(a, b, "--inputs", tmp_path / "none.npz") == "no-file"
    assert refused(a, b, "--inputs", f"c.onnx:{a}") == "bad-samples"
    assert refused(a, b, "--precision", "int8", "--inputs", f"a.onnx:{a}") == "samples-needed"
    assert refused(a, b, "--shape", "c.onnx:x=1,8") == "bad-shape"
    assert refused(a, b, "--value", "c.onnx:x=1") == "bad-value"
    assert refused(a, "--device-key", "pool,nowhere") == "unknown-device-key"
    assert refused(a, "--precision", "as-model,int3") == "unknown-precision"
    assert refused(a, b, "--trials", 1) == "invalid-budget"
    many = [farm.write_model(tmp_path / f"many{seed}.onnx", seed=seed) for seed in range(33)]
    assert refused(*many, "--precision", "as-model,float16-weights", "--minutes", 9) == "too-many-jobs"
    assert list(client.models.all()) == [], "it was refused before the first upload"
    assert list(client.sweeps.all()) == []
    assert list(client.jobs.all()) == []
    assert parsed(run, "tune", a, "--shape", "a.onnx:x=3,8", "--trials", 8, "-o", tmp_path)["job"]
    (model,) = {model.id: model for model in client.models.all() if model.raw["shapes"]}.values()
    assert model.raw["shapes"] == {"x": [3, 8]}


@pytest.mark.exhaustive
def test_samples_of_each_file(run: Any, farm: ReplayServer, client: Client, tmp_path: Path) -> None:
    """Those with a file's name are its own; the others are for the files without. A file whose samples do not fit is refused."""
    files = [
        farm.write_model(tmp_path / f"{name}.onnx", tasks=1, seed=seed) for seed, name in enumerate("abc")
    ]
    every, own, wrong = (tmp_path / f"{name}.npz" for name in ("every", "own", "wrong"))
    for path, array in ((every, np.ones((3, 1, 8))), (own, np.ones((2, 1, 8))), (wrong, np.ones((9, 9)))):
        np.savez(path, x=array.astype(np.float32))
    result = run(
        *("tune", *files, "--trials", 16, "--tuner", "random", "-o", tmp_path / "out", "--inputs", every),
        *("--inputs", f"b.onnx:{own}", "--inputs", f"{files[2]}:{wrong}"),
        code=1,
    )
    assert "wrong.npz" in result.stderr
    (sweep,) = client.sweeps.all()
    cells = client.sweeps.get(sweep.id).cells
    assert [(cell.model_name, cell.state) for cell in cells] == [
        ("a", "succeeded"),
        ("b", "succeeded"),
        ("c.onnx", "refused"),
    ]
    used = {}
    for cell in cells[:2]:
        job = client.jobs.get(cell.job_id or "")
        names = {file.id: file.name for file in client.samples.list(job.model_id)}
        used[cell.model_name] = [names[samples_id] for samples_id in job.raw["options"]["samples"]]
    assert used == {"a": ["every.npz"], "b": ["own.npz"]}


def test_files_with_one_network_or_one_name(
    run: Any, farm: ReplayServer, client: Client, tmp_path: Path
) -> None:
    """One network is tuned once, which is said; two networks of one name have rows and folders of their own."""
    (tmp_path / "other").mkdir()
    first = farm.write_model(tmp_path / "net.onnx", tasks=1, seed=0)
    copy = farm.write_model(tmp_path / "copy.onnx", tasks=1, seed=0)
    namesake = farm.write_model(tmp_path / "other" / "net.onnx", tasks=1, seed=1)
    out = tmp_path / "out"
    result = run("tune", first, copy, namesake, "--trials", 8, "--tuner", "random", "-o", out)
    assert f"copy.onnx: the same network as {first}" in result.stderr.replace("\n", "")
    (sweep,) = client.sweeps.all()
    assert [cell.model_name for cell in client.sweeps.get(sweep.id).cells] == ["net@1", "net@2"]
    assert {path.parent.name for path in out.rglob("*.tunefarm")} == {
        "net-1-pool-as-model",
        "net-2-pool-as-model",
    }


def test_folders_of_any_names_differ() -> None:
    names = ["net", "NET", "a/b", "a:b", "..", "net.v1.onnx", "net.v2.onnx", "網" * 200]
    cells = [
        SweepCell(position=number, model_name=name, device_key="x86", precision="as-model")
        for number, name in enumerate(names)
    ]
    folders = _folders(cells)
    assert len({folder.lower() for folder in folders.values()}) == len(names)
    assert (folders[0], folders[5]) == ("net-x86-as-model~0", "net.v1-x86-as-model")
    assert all(len(folder.encode()) < 255 and "/" not in folder for folder in folders.values())
    assert not any(folder.startswith(".") for folder in folders.values())


def test_several_targets_in_one_option_are_refused_with_the_option_for_several_pools(
    run: Any, farm: ReplayServer, tmp_path: Path
) -> None:
    """``--target arm,x86`` was answered by the nearest names of CPUs."""
    model = farm.write_model(tmp_path / "a.onnx", tasks=1, seed=0)
    for command in ("tune", "compile"):
        result = run(command, model, "--target", "arm,x86", code=2)
        assert "--device-key x86,arm" in " ".join(result.stderr.split())
