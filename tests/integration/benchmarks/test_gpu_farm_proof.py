"""The job that proves a GPU's farm, on a CPU in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.gpu import farm_proof
from benchmarks.gpu.check import small_networks
from benchmarks.gpu.farm_job import GpuFarm
from benchmarks.gpu.proofs import NotProvedError
from benchmarks.models.networks.graph import write_network

pytestmark = pytest.mark.exhaustive


def test_a_network_is_tuned_by_a_farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm_proof, "_SEARCH_SEC", 8.0)
    network = write_network(small_networks()["convnet"], tmp_path / "net.onnx")
    said: list[str] = []
    with GpuFarm(tmp_path / "farm", said.append, target="host") as farm:
        found = farm_proof.tuned_by(farm, network, tmp_path / "made", readings=())
        assert "kernels are tuned" in found
        assert "onnxruntime: " in found
        with pytest.raises(NotProvedError, match="records do not tell clock_mhz of the GPU"):
            farm_proof.tuned_by(farm, network, tmp_path / "again")
