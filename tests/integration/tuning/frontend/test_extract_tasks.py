"""The tuning tasks of a network."""

from __future__ import annotations

from pathlib import Path

import onnx_models
import pytest

from tunefarm_tuning import Model, TuningTask, extract_tasks, import_model
from tunefarm_tuning.frontend.importing import import_with_tasks
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.tasks.workload_key import workload_key

CPU = "llvm -mcpu=znver4 -num-cores=2"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("models") / "encoder"
    path.write_bytes(onnx_models.encoder_block(batch="N").SerializeToString())
    return import_model(path, shapes={"ids": (1, 8)})


@pytest.fixture(scope="module")
def encoder_tasks(encoder: Model) -> tuple[TuningTask, ...]:
    return extract_tasks(encoder, CPU)


def named(tasks: tuple[TuningTask, ...]) -> dict[str, TuningTask]:
    return {task.workload.name: task for task in tasks}


def test_equal_kernels_are_one_task_with_a_weight(encoder_tasks: tuple[TuningTask, ...]) -> None:
    tasks = named(encoder_tasks)
    assert tasks["layer_norm"].weight == 2
    assert tasks["softmax"].weight == 1
    keys = [task.workload.key for task in encoder_tasks]
    assert len(set(keys)) == len(keys)


def test_tasks_say_what_they_are(encoder_tasks: tuple[TuningTask, ...]) -> None:
    task = named(encoder_tasks)["fused_matmul_add2"]
    # Query, key and value, side by side.
    assert [arg.shape for arg in task.workload.args] == [(1, 8, 16), (16, 48), (1, 1, 48), (1, 8, 48)]
    assert {arg.dtype for arg in task.workload.args} == {"float32"}
    assert task.workload.flops == pytest.approx(2 * 8 * 16 * 48 + 8 * 48)
    assert task.target.key == CPU
    assert TuningTask.from_json(task.to_json()) == task


def test_the_ir_reads_back_and_has_the_key(encoder_tasks: tuple[TuningTask, ...]) -> None:
    for task in encoder_tasks:
        module = module_from_text(task.workload.ir)
        assert [var.name_hint for var in module.get_global_vars()] == ["main"]
        assert workload_key(module["main"]) == task.workload.key


def test_extracting_again_in_another_process_gives_the_same(
    encoder: Model, encoder_tasks: tuple[TuningTask, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "12345")
    assert extract_tasks(encoder, CPU) == encoder_tasks


@pytest.mark.exhaustive
def test_names_in_the_file_make_no_difference(encoder_tasks: tuple[TuningTask, ...], tmp_path: Path) -> None:
    renamed = onnx_models.encoder_block()
    for node in renamed.graph.node:
        node.name = f"other/{node.name}"
        node.input[:] = [f"other.{name}" if name else "" for name in node.input]
        node.output[:] = [f"other.{name}" for name in node.output]
    for value in (*renamed.graph.input, *renamed.graph.output, *renamed.graph.initializer):
        value.name = f"other.{value.name}"
    path = tmp_path / "renamed"
    path.write_bytes(renamed.SerializeToString())
    assert extract_tasks(import_model(path), CPU) == encoder_tasks


def test_targets_of_one_pipeline_share_workloads(
    encoder: Model, encoder_tasks: tuple[TuningTask, ...]
) -> None:
    host = extract_tasks(encoder, "host")
    assert [task.workload for task in host] == [task.workload for task in encoder_tasks]


@pytest.mark.exhaustive
def test_reshapes_are_no_tasks(tmp_path: Path) -> None:
    path = tmp_path / "net"
    path.write_bytes(onnx_models.residual_net().SerializeToString())
    names = [task.workload.name for task in extract_tasks(import_model(path), "cuda/sm_90")]
    assert "reshape" not in names
    assert any("conv2d" in name for name in names)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["cuda/sm_90", CPU])
def test_weights_are_told_from_what_comes_of_inputs(tmp_path: Path, target: str) -> None:
    """A GPU's kernels are timed with large weights out of its cache, though no schedule changes their order."""
    path = tmp_path / "net"
    path.write_bytes(onnx_models.mobile_block(channels=32).SerializeToString())
    tasks = extract_tasks(import_model(path), target)
    constant = {arg.shape for task in tasks for arg in task.workload.args if arg.constant}
    assert constant == {(1, 1, 32, 128), (1, 1, 128, 32)}, "the others are small"
    for task in tasks:
        func = module_from_text(task.workload.ir)["main"]
        assert workload_key(func) == task.workload.key
        may_pack = target == CPU and any(arg.constant for arg in task.workload.args)
        assert ("layout_free_buffers" in func.attrs) == may_pack


@pytest.mark.exhaustive
def test_convolutions_are_channels_last_on_a_cpu_and_clips_fuse_with_them(tmp_path: Path) -> None:
    path = tmp_path / "net"
    path.write_bytes(onnx_models.mobile_block().SerializeToString())
    tasks = extract_tasks(import_model(path), CPU)
    assert len(tasks) == 5  # three convolutions, and the layout's change at both edges
    convolutions = [task for task in tasks if "conv2d" in task.workload.name]
    assert [task.workload.args[-1].shape for task in convolutions] == [
        (1, 16, 16, 32),
        (1, 16, 16, 32),
        (1, 16, 16, 8),
    ]
    assert sum("minimum" in task.workload.name for task in convolutions) == 2


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("kind", ["open", "convolutions"])
def test_an_import_extracts_the_same_tasks(kind: str, tmp_path: Path) -> None:
    network, shapes = (
        (onnx_models.encoder_block(batch="N"), {"ids": (1, 8)})
        if kind == "open"
        else (onnx_models.residual_net(widths=(32, 64)), {})
    )
    path = tmp_path / "net"
    path.write_bytes(network.SerializeToString())
    model, tasks = import_with_tasks(path, shapes=shapes)
    assert model == import_model(path, shapes=shapes)
    assert tasks
    assert tasks == extract_tasks(model, "llvm")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["residual_net", "ragged", "encoder_block", "u_net", "mobile_block", "conv_1d", "squeeze_excite"]
)
def test_float_networks_have_the_same_tasks_on_cpus_with_products_of_bytes(name: str, tmp_path: Path) -> None:
    """The farm takes the tasks of an import for them (`rows.shares_tasks_of_any_cpu`)."""
    path = tmp_path / "net"
    network = onnx_models.residual_net(widths=(36, 116)) if name == "ragged" else getattr(onnx_models, name)()
    path.write_bytes(network.SerializeToString())
    model, tasks = import_with_tasks(path)
    for target in (
        "llvm -mcpu=cascadelake -num-cores=4",
        "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1",
    ):
        on_bytes = extract_tasks(model, target)
        assert [(task.workload, task.weight, task.alternative) for task in on_bytes] == [
            (task.workload, task.weight, task.alternative) for task in tasks
        ]
