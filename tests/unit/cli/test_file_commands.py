"""Commands that work on files alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuning_records import RECORD
from typer.testing import CliRunner

from tunefarm.cli.artifact_run import other_work, read_inputs, write_outputs
from tunefarm.cli.base.connect import Server, read_key
from tunefarm.cli.main import make_app
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.records.record import TuningRecord, load_records

APP = make_app()

SPECS: list[dict[str, Any]] = [
    {"name": "x", "shape": [2], "dtype": "float32"},
    {"name": "ids=0", "shape": [1], "dtype": "int64"},
]


def record(workload: str, *samples_sec: float) -> TuningRecord:
    outcome = Outcome.OK if samples_sec else Outcome.RUN_ERROR
    return replace(RECORD, workload_key=workload, outcome=outcome, samples_sec=samples_sec)


def test_pick_best(tmp_path: Path) -> None:
    log = tmp_path / "all.jsonl"
    records = [record("a", 3.0), record("a", 1.0, 2.0), record("a"), record("b", 5.0)]
    log.write_text("".join(r.to_json() + "\n" for r in records))
    printed = CliRunner().invoke(APP, ["records", "pick-best", str(log)])
    assert printed.exit_code == 0, printed.output
    assert [json.loads(line)["samples_sec"] for line in printed.stdout.splitlines()] == [[1.0, 2.0], [5.0]]

    best = tmp_path / "best.jsonl"
    written = CliRunner().invoke(APP, ["records", "pick-best", str(log), "-o", str(best), "--json"])
    assert json.loads(written.stdout) == {"records": 2, "output": str(best)}
    assert [r.workload_key for r in load_records(best)] == ["a", "b"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.jsonl", "best.jsonl"]


def test_pick_best_of_something_else(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"version": 99}\n')
    result = CliRunner().invoke(APP, ["records", "pick-best", str(log)])
    assert result.exit_code == 2
    assert "line 1" in result.stderr
    assert CliRunner().invoke(APP, ["records", "pick-best", str(tmp_path / "none")]).exit_code == 2


def test_inputs_by_name_and_by_order(tmp_path: Path) -> None:
    x, ids = tmp_path / "a=b.npy", tmp_path / "ids.npy"
    np.save(x, np.ones(2, np.float32))
    np.save(ids, np.zeros(1, np.int64))
    both = tmp_path / "both.npz"
    np.savez(both, **{"x": np.ones(2, np.float32), "ids=0": np.zeros(1, np.int64)})
    for texts in ([str(x), str(ids)], [f"ids=0={ids}", str(x)], [f"x={x}", f"ids=0={ids}"], [str(both)]):
        assert {name: array.shape for name, array in read_inputs(SPECS, texts).items()} == {
            "x": (2,),
            "ids=0": (1,),
        }


def test_inputs_that_are_none(tmp_path: Path) -> None:
    x, text = tmp_path / "x.npy", tmp_path / "text.npy"
    np.save(x, np.ones(2, np.float32))
    text.write_text("hello")
    pickled = tmp_path / "pickled.npy"
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    cut, odd = tmp_path / "cut.npz", tmp_path / "odd.npz"
    cut.write_bytes(b"PK\3\4 and no more")
    np.savez(odd, x=np.array([{}], dtype=object))
    for texts in (
        [str(text)],
        [str(pickled)],
        [str(cut)],
        [str(odd)],
        [str(x)] * 3,
        [f"x={x}", f"x={x}"],
        [f"y={x}"],
    ):
        with pytest.raises(InvalidInputError):
            read_inputs(SPECS, texts)
    with pytest.raises(FileNotFoundError):
        read_inputs(SPECS, [str(tmp_path / "none.npy")])


def test_outputs_stay_in_their_folder(tmp_path: Path) -> None:
    outputs = {name: np.zeros(1) for name in ("../../x", ".._.._x", "logits", "")}
    files = write_outputs(outputs, tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(f.name for f in files.values())
    assert len(set(files.values())) == 4
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_timing_beside_other_work_says_so() -> None:
    quiet = Watched(wall_sec=2.0, cores=2, others_sec=0.02, steal_sec=0.0, switches=3, stalled_sec=None)
    busy = replace(quiet, others_sec=3.24)
    assert other_work(quiet, 2) == other_work(None, 2) == ""
    assert "other work took 1.62 cores meanwhile" in other_work(busy, 2)
    assert other_work(replace(busy, cores=8), 2) == "", "there were cores for both"


def test_run_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "x.tunefarm"
    file.write_text("hello")
    result = CliRunner().invoke(APP, ["run", str(file), "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "not-an-artifact"


def test_the_key_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" tfk_1\n")
    assert read_key(file) == "tfk_1"
    assert Server(url="http://x", api_key=None, api_key_file=file, home=None).find() == ("http://x", "tfk_1")
    assert Server(url="http://x", api_key="k", api_key_file=file, home=None).find() == ("http://x", "k")
    file.write_text("\n")
    with pytest.raises(InvalidInputError):
        read_key(file)
