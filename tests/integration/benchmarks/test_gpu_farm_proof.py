"""The proof of a GPU farm, with a CPU in the GPU's place."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from benchmarks.gpu.farm_job import GpuFarm
from benchmarks.gpu.farm_proof import tuned_by
from benchmarks.gpu.proofs import NotProvedError
from benchmarks.models.networks.graph import write_network
from onnx import TensorProto, helper

CHANNELS, COLUMNS = 33, 70

pytestmark = pytest.mark.exhaustive


def sums(images: int) -> onnx.ModelProto:
    """Return a network that sums the squares of each channel of so many images.

    Its default schedule takes one element after the other. Configs are several times as fast, on one core as well: whether
    the kernel counts as tuned depends neither on luck nor on what else the machine does.
    """
    graph = helper.make_graph(
        [helper.make_node("ReduceSumSquare", ["x"], ["y"], axes=[0, 2], keepdims=0)],
        "sums",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [images, CHANNELS, COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [CHANNELS])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_network_is_tuned_by_a_farm(tmp_path: Path) -> None:
    network, other = (write_network(sums(images), tmp_path / f"{images}.onnx") for images in (256, 64))
    lines: list[str] = []
    with GpuFarm(tmp_path / "farm", lines.append, target="host") as farm:
        proof = tuned_by(farm, network, tmp_path / "made", trials=4, readings=())
        assert "1 of 1 kernels are tuned" in proof
        assert "onnxruntime: " in proof
        with pytest.raises(NotProvedError, match="records do not tell clock_mhz of the GPU"):
            tuned_by(farm, other, tmp_path / "again", trials=4)
