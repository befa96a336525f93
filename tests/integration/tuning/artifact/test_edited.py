"""Artifacts with an edited manifest that no longer fits the library."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefarm_tuning import Artifact, Coverage
from tunefarm_tuning.artifact.loader import ArtifactError, load


def edited(source: Path, path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
            new.writestr(name, data)
    return path


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m: m["inputs"].append({"name": "z", "shape": [2], "dtype": "float32"}), "run-failed"),
        (lambda m: m["inputs"].clear(), "run-failed"),
        (lambda m: m["inputs"][0].update(shape=[1, 65]), "run-failed"),
        (lambda m: m["inputs"][0].update(shape=[]), "run-failed"),
        (lambda m: m["inputs"][0].update(dtype="int8"), "run-failed"),
        (lambda m: m["outputs"].clear(), "damaged-artifact"),
    ],
)
def test_it_cannot_be_run(
    compiled: tuple[Artifact, Coverage], tmp_path: Path, change: Callable[[dict[str, Any]], None], code: str
) -> None:
    model = load(edited(compiled[0].path, tmp_path / "edited.tunefarm", change), threads=1)
    inputs = {spec["name"]: np.ones(spec["shape"], spec["dtype"]) for spec in model.inputs}
    with pytest.raises(ArtifactError) as caught:
        model.run(inputs)
    assert caught.value.code == code
    assert "\n" not in caught.value.message
