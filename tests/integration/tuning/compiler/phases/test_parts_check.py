"""A network with a fault that its outputs hide, and one whose outputs show it: the check part by part names the node."""

from __future__ import annotations

from contextlib import ExitStack
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
from tunefarm_tuning.compiler.phases.parts_check import check_parts
from tunefarm_tuning.compiler.request import CompileRequest, Progress
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.records.history import History
from tunefarm_tuning.workload.model import Model

SATURATED = 60.0


def network(*, saturated: bool) -> onnx.ModelProto:
    g = GraphBuilder()
    x = g.input("x", [1, 3, 12, 12])
    for channels, before in ((8, 3), (8, 8), (4, 8)):
        x = g.node("Relu", g.node("Conv", x, g.weight(channels, before, 3, 3), pads=[1, 1, 1, 1]))
    if saturated:
        x = g.node("Add", x, g.constant(np.array([SATURATED], np.float32)))
    g.output(g.node("Sigmoid", x))
    return g.model()


def with_a_wrong_weight(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network, or a part of it, with weights of its second convolution that are 0.1 % too large."""
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    for tensor in wrong.graph.initializer:
        if list(tensor.dims) == [8, 8, 3, 3]:
            values = numpy_helper.to_array(tensor) * np.float32(1.001)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return wrong


def faulty_job(folder: Path, *, saturated: bool) -> CompileJob:
    """Return a compile whose compiler reads wrong weights, of the network and of its parts."""
    folder.mkdir()
    path = folder / "net.onnx"
    path.write_bytes(network(saturated=saturated).SerializeToString())
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


@pytest.mark.parametrize("saturated", [False, True])
def test_a_layer_that_is_off_by_a_thousandth_is_refused_by_name(tmp_path: Path, saturated: bool) -> None:
    job = faulty_job(tmp_path / "work", saturated=saturated)
    second = [node for node in network(saturated=saturated).graph.node if node.op_type == "Conv"][1]
    with pytest.raises(InvalidModelError) as caught:
        job.run(tmp_path / "a.tunefarm")
    assert caught.value.code == "wrong-output"
    assert f"the first part that departs is node '{second.name}' (Conv): " in caught.value.message
    assert ("they hide a fault" in caught.value.message) is saturated
    assert caught.value.fields["checks"]["parts"]["wrong"]["tensor"] == second.output[0]
    assert not (tmp_path / "a.tunefarm").exists()


def test_parts_of_a_right_network_are_right(tmp_path: Path) -> None:
    job = faulty_job(tmp_path / "work", saturated=True)
    right = CompileJob(request=job.request)
    with ExitStack() as stack:
        loaded = load(right.request, stack, right.open_compiler, right.make_reference)
        parts = check_parts(right.request, loaded, right.open_compiler, loaded.sets[0])
    assert parts.wrong is None
    assert not parts.not_checked
    assert parts.parts == 4
