"""Networks with a fault that their outputs hide, and one whose outputs show it: the check segment by segment names the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_models import GraphBuilder

from tunefarm_tuning import import_model, parse_target
from tunefarm_tuning.compiler.job import CompileJob
from tunefarm_tuning.compiler.phases.load import load
from tunefarm_tuning.compiler.phases.segments_check import check_segments
from tunefarm_tuning.compiler.request import CompileRequest, Progress
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.records.history import History
from tunefarm_tuning.workload.model import Model

SATURATED = 60.0


def plain(*, saturated: bool) -> onnx.ModelProto:
    g = GraphBuilder()
    x = g.input("x", [1, 3, 12, 12])
    for channels, before in ((8, 3), (8, 8), (4, 8)):
        x = g.node("Relu", g.node("Conv", x, g.weight(channels, before, 3, 3), pads=[1, 1, 1, 1]))
    if saturated:
        x = g.node("Add", x, g.constant(np.array([SATURATED], np.float32)))
    g.output(g.node("Sigmoid", x))
    return g.model()


def quantised() -> onnx.ModelProto:
    """Return a network whose weights and activations are 8-bit integers: its outputs are compared within a tenth."""
    g = GraphBuilder()
    rng = np.random.default_rng(5)
    x = _rounded(g, g.input("x", [1, 3, 12, 12]), 0.03)
    for channels, before in ((8, 3), (8, 8), (4, 8)):
        values = rng.integers(-127, 128, (channels, before, 3, 3)).astype(np.int8)
        scales = (0.002 + 0.002 * rng.random(channels)).astype(np.float32)
        zeros = np.zeros(channels, np.int8)
        weights = g.node("DequantizeLinear", *map(g.constant, (values, scales, zeros)), axis=0)
        x = g.node("Relu", g.node("Conv", x, weights, pads=[1, 1, 1, 1]))
        if channels == 8:
            x = _rounded(g, x, 0.05)
    g.output(g.node("Sigmoid", x))
    return g.model()


def _rounded(g: GraphBuilder, x: str, step: float) -> str:
    scale = [g.constant(np.array(step, np.float32)), g.constant(np.array(0, np.int8))]
    return g.node("DequantizeLinear", g.node("QuantizeLinear", x, *scale), *scale)


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "plain": partial(plain, saturated=False),
    "saturated": partial(plain, saturated=True),
    "quantised": quantised,
}


def with_a_wrong_weight(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network, or a segment of it, with weights of its second convolution that are 0.1 % too large."""
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    tensors = {tensor.name: tensor for tensor in wrong.graph.initializer}
    second = next(tensor for tensor in tensors.values() if list(tensor.dims) == [8, 8, 3, 3])
    readers = [node for node in wrong.graph.node if second.name in node.input]
    if readers[0].op_type == "DequantizeLinear":
        second = tensors[readers[0].input[1]]
    values = numpy_helper.to_array(second) * np.float32(1.001)
    second.CopyFrom(numpy_helper.from_array(values, second.name))
    return wrong


def faulty_job(folder: Path, name: str) -> CompileJob:
    """Return a compile whose compiler reads wrong weights, of the network and of its segments."""
    folder.mkdir()
    path = folder / "net.onnx"
    path.write_bytes(NETWORKS[name]().SerializeToString())
    cancellation = Cancellation()

    def make_compiler(model: Model, *args: Any) -> CompileSession:
        wrong = folder / f"wrong-{model.path.name}"
        wrong.write_bytes(with_a_wrong_weight(onnx.load(model.path)).SerializeToString())
        return CompileSession(Model(**{**_fields(model), "path": wrong}), *args)

    request = CompileRequest(
        model=import_model(path),
        target=parse_target("host"),
        history=History([]),
        device=None,
        name="net",
        baseline=False,
        limits=CompileLimits(),
        seed=0,
        folder=folder,
        progress=Progress(lambda _phase, _done: None, cancellation),
        cancellation=cancellation,
    )
    return CompileJob(request=request, make_compiler=make_compiler)


def _fields(model: Model) -> dict[str, Any]:
    return {name: getattr(model, name) for name in Model.__dataclass_fields__}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_layer_that_is_off_by_a_thousandth_is_refused_by_name(tmp_path: Path, name: str) -> None:
    job = faulty_job(tmp_path / "work", name)
    second = [node for node in NETWORKS[name]().graph.node if node.op_type == "Conv"][1]
    with pytest.raises(InvalidModelError) as caught:
        job.run(tmp_path / "a.tunefarm")
    assert caught.value.code == "wrong-output"
    assert f"the first segment that differs is node '{second.name}' (Conv): " in caught.value.message
    assert ("they hide a fault" in caught.value.message) is (name != "plain")
    assert caught.value.fields["checks"]["parts"]["wrong"]["tensor"] == second.output[0]
    assert not (tmp_path / "a.tunefarm").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "segments"), [("saturated", 4), ("quantised", 9)])
def test_segments_of_a_right_network_are_right(tmp_path: Path, name: str, segments: int) -> None:
    job = faulty_job(tmp_path / "work", name)
    right = CompileJob(request=job.request)
    with ExitStack() as stack:
        loaded = load(right.request, stack, right.open_compiler, right.make_reference)
        checked = check_segments(right.request, loaded, right.open_compiler, loaded.sets[0])
    assert checked.wrong is None
    assert not checked.not_checked
    assert checked.count == segments
