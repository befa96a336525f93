"""Samples by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def write(path: Path, dtype: type = np.float32) -> Path:
    np.savez(path, x=np.ones((3, 1, 8), dtype))
    return path


def test_tune_with_samples(run: Any, farm: Any, tmp_path: Path) -> None:
    model = farm.write_model(tmp_path / "net.onnx", tasks=1)
    paths = [write(tmp_path / "day.npz"), write(tmp_path / "wrong.npz", np.float64)]
    result = run("tune", model, "--trials", "8", "--inputs", paths[0], "-o", tmp_path / "out", "--json")
    job = json.loads(result.stdout)["job"]
    (samples,) = json.loads(run("models", "samples", job["model_id"], "--json").stdout)
    assert job["options"]["samples"] == [samples["id"]]
    assert (samples["name"], samples["state"], samples["sets"]) == ("day.npz", "ready", 3)
    assert "day.npz" in run("models", "samples", job["model_id"]).stdout
    refused = run("tune", model, "--trials", "8", "--inputs", paths[1], code=2)
    assert "wrong.npz: the array of input 'x' is float64" in refused.stderr
    absent = run("tune", model, "--trials", "8", "--inputs", tmp_path / "none.npz", code=2)
    assert "there is no such file" in absent.stderr
    run("models", "upload", model, "--inputs", write(tmp_path / "night.npz"))
    run("models", "delete-samples", job["model_id"], samples["id"])
    listed = json.loads(run("models", "samples", job["model_id"], "--json").stdout)
    assert [item["name"] for item in listed] == ["wrong.npz"]  # night.npz has the bytes of day.npz
