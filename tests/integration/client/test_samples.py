"""Samples by the client, against the real API and a worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefarm.client import Client, InvalidRequestError, NotFoundError


def write(path: Path, dtype: type = np.float32, sets: int = 12) -> Path:
    np.savez(path, x=np.ones((sets, 1, 8), dtype))
    return path


@pytest.mark.matrix(every=2, each_value=False)
def test_tune_with_samples(farm: Any, client: Client, tmp_path: Path) -> None:
    file = farm.write_model(tmp_path / "net.onnx", tasks=1)
    paths = [write(tmp_path / "day.npz"), write(tmp_path / "night.npz", sets=2)]
    job = client.tune(file, trials=8, samples=paths)
    done = job.wait(poll_sec=0.05, timeout_sec=120)
    listed = client.samples.list(done.model_id)
    assert [samples.name for samples in listed] == ["night.npz", "day.npz"]
    assert [(samples.sets, samples.expires_at) for samples in listed] == [(2, None), (12, None)]
    assert done.raw["options"]["samples"] == [samples.id for samples in reversed(listed)]
    assert listed[1].summary()["sets"] == "12"
    files = job.download(tmp_path / "out")
    assert json.loads(files.artifact.read_text())["report"]["samples"] == 2
    client.samples.delete(done.model_id, listed[0].id)
    with pytest.raises(NotFoundError) as gone:
        client.samples.get(done.model_id, listed[0].id)
    assert gone.value.code == "samples-not-found"


def test_samples_that_do_not_fit(farm: Any, client: Client, tmp_path: Path) -> None:
    file = farm.write_model(tmp_path / "net.onnx", tasks=1)
    with pytest.raises(InvalidRequestError, match=r"wrong\.npz: the array of input 'x' is float64") as wrong:
        client.tune(file, trials=8, samples=write(tmp_path / "wrong.npz", np.float64))
    assert wrong.value.code == "sample-dtype"
    assert wrong.value.fields["wanted"] == "float32"
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InvalidRequestError) as text:
        client.tune(file, trials=8, samples=tmp_path / "text.npz")
    assert text.value.code == "not-npz"
    before = len(list(client.models.all()))
    other = farm.write_model(tmp_path / "other.onnx", tasks=2)
    with pytest.raises(FileNotFoundError):
        client.tune(other, trials=8, samples=tmp_path / "none.npz")
    assert len(list(client.models.all())) == before, "a typo costs no upload"
