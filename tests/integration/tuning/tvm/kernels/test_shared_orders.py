"""Tuned kernels of several sets of shapes: they take their weights in one order, and compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
import tvm
from onnx_models import mlp
from tvm import relax

from tunefarm_tuning import import_model
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.testing.records import applicable_records
from tunefarm_tuning.tvm.codegen.scheduled_build import with_packed_defaults
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedules
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel
from tunefarm_tuning.tvm.transform.merge_entries import merge_entries
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import entry_name


# With the tiles of some seeds vectors would be torn apart in the smallest kernel's order: the others keep their own.
# Where only the first set of shapes has records, the default schedules of the others read weights as its kernels do.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("seed", "only_first", "most_copies"), [(0, False, 1.6), (2, False, 3.5), (7, True, 1.3), (19, True, 1.3)]
)
def test_a_weight_is_stored_once_for_all_shapes(
    seed: int, only_first: bool, most_copies: float, tmp_path: Path
) -> None:
    path = tmp_path / "net.onnx"
    network = mlp(batch="n", features=(384, 768, 64))
    onnx.save(network, path)
    model = import_model(path, shapes={"x": "1|6|32,384"})
    recorded = model.each[0] if only_first else model
    records = {record.workload_key: record for record in applicable_records(recorded, seed=seed)}
    library = tmp_path / "net.so"
    session = CompileSession(model, parse_target("host"), tmp_path, CompileLimits())
    try:
        tasks = session.load().tasks
        session.build_model(
            library,
            {
                name: records[task.workload_key]
                for task in tasks
                for name in task.names
                if task.workload_key in records
            },
        )
    finally:
        session.close()
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in network.graph.initializer}
    assert library.stat().st_size < most_copies * sum(array.nbytes for array in weights.values())
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    for number, each in enumerate(model.each):
        x = np.random.default_rng(number).standard_normal(each.inputs[0].shape).astype(np.float32)
        y = machine[entry_name(number)](tvm.runtime.tensor(x))
        np.testing.assert_allclose(y.numpy(), expected(network, x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("depth", "columns"), [(1024, 16), (768, 8)])
def test_half_a_cache_line_leads_only_where_no_lines_collide(
    depth: int, columns: int, tmp_path: Path
) -> None:
    """On AVX2, 16 rows take panels of 8 columns, and 64 rows of 16."""
    haswell = parse_target("llvm -mcpu=haswell")
    path = tmp_path / "net.onnx"
    onnx.save(mlp(batch="n", features=(depth, 256)), path)
    networks = [load_relax(path, Binding(shapes={"x": (rows, depth)}), haswell) for rows in (16, 64)]
    module = merge_entries(network.module for network in networks).module
    alone = packed_default_schedules(module, haswell)
    assert {panel_columns(kernel) for kernel in alone.values()} == {8, 16}
    together = with_packed_defaults(module, {}, haswell)
    assert {panel_columns(kernel) for kernel in together.values()} == {columns}


def panel_columns(kernel: PackedKernel) -> int:
    (packing,) = kernel.packings.values()
    return packing.packed_shape[-1]


def expected(network: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return np.asarray(onnx.reference.ReferenceEvaluator(network).run(None, {"x": x})[0])
