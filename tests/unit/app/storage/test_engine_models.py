"""A stored model in the engine's form."""

from __future__ import annotations

import pytest

from tunefarm_app.storage.pipelines import shares_tasks_of_any_cpu
from tunefarm_app.storage.rows import engine_model
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Specialisation
from tunefarm_tuning.workload.runtime_part import OpenSpec
from tunefarm_tuning.workload.task import TensorSpec


def shaped(*shape: int) -> Specialisation:
    return Specialisation(
        binding=Binding(shapes={"x": shape}),
        inputs=(TensorSpec(name="x", shape=shape, dtype="float32"),),
        outputs=(OpenSpec(name="y", shape=shape, dtype="float32"),),
        weight=shape[0],
    )


def test_sets_of_shapes_come_back_as_they_were_stored(farm) -> None:
    items = (shaped(8, 3), shaped(2, 3))
    with farm.services.uow.write() as repos:
        model = repos.models.add(name="net", sha256="0" * 64, size_bytes=1, shapes={"x": "2..8,3@2,8"})
        row = repos.models.set_ready(
            model.id,
            inputs=[spec.to_json() for spec in items[0].inputs],
            outputs=[spec.to_json() for spec in items[0].outputs],
            operators=[],
            opset=17,
            num_params=0,
            specialisations=[item.to_json() for item in items],
        )
    stored = engine_model(_AnyBlob(), row)
    assert stored.specialisations == items
    assert stored.binding == items[0].binding
    assert stored.least_batch == 2
    assert stored.weights == (8, 2)
    assert [each.inputs[0].shape for each in stored.each] == [(8, 3), (2, 3)]


class _AnyBlob:
    def path(self, sha256: str) -> str:
        return sha256


@pytest.mark.parametrize(
    ("pipeline", "operators", "shared"),
    [
        ("cpu dot16", [["Conv", 3], ["Relu", 3]], True),
        ("cpu dot16", [["Conv", 3], ["DequantizeLinear", 6]], False),
        ("cpu dot16", [["com.microsoft.QGemm", 1]], False),
        ("cpu dot16", [["ConvInteger", 1]], False),
        ("cpu dot16 bfloat16", [["Conv", 3]], False),
        ("cpu", [["Conv", 3]], False),
    ],
)
def test_float_networks_have_the_tasks_of_any_cpu(
    pipeline: str, operators: list[list[object]], shared: bool
) -> None:
    target = parse_target("llvm -mcpu=cascadelake")
    assert shares_tasks_of_any_cpu(target, pipeline, operators) is shared
