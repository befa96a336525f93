"""Several networks as the entries of one module: they share kernels and weights, and compute what each computes alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx_models import mlp
from onnx_reference import UNOPTIMISED, library_outputs, reference_outputs
from tvm import relax

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.tvm.base.relax_graph import entry_names
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.kernels.weight_packing import kernel_calls
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.merge_entries import add_entry, merge_entries, with_own_kernels
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

WIDE = (256, 256, 256, 16)
WEIGHT_BYTES = 4 * (2 * 256 * 256 + 256 * 16)


def load_batches(folder: Path, batches: Sequence[int]) -> tuple[Path, list[RelaxNetwork]]:
    path = folder / "mlp.onnx"
    path.write_bytes(mlp(batch="batch", features=WIDE).SerializeToString())
    return path, [load_relax(path, Binding(shapes={"x": (batch, WIDE[0])}), UNOPTIMISED) for batch in batches]


@pytest.mark.parametrize("scheduled", [False, True])
def test_every_entry_computes_its_network(tmp_path: Path, scheduled: bool) -> None:
    path, networks = load_batches(tmp_path, (1, 8, 20))
    merged = merge_entries(network.module for network in networks)
    library = tmp_path / "merged.so"
    build_model(merged.module, UNOPTIMISED, library, default_schedules=scheduled)
    assert entry_names(merged.module) == ["main", "main_1", "main_2"]
    for entry, network in zip(entry_names(merged.module), networks, strict=True):
        inputs = random_inputs(network.inputs, seed=1)
        (output,) = library_outputs(library, entry, inputs)
        (expected,) = reference_outputs(path, network, inputs)
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-6)


def test_weights_are_stored_once(tmp_path: Path) -> None:
    _, networks = load_batches(tmp_path, (8, 16, 32))
    libraries = {}
    for name, module in {
        "alone": networks[0].module,
        "merged": merge_entries(network.module for network in networks).module,
    }.items():
        libraries[name] = tmp_path / f"{name}.so"
        build_model(module, UNOPTIMISED, libraries[name])
    added_bytes = libraries["merged"].stat().st_size - libraries["alone"].stat().st_size
    assert added_bytes < WEIGHT_BYTES / 4


def test_entries_have_one_object_for_equal_weights(tmp_path: Path) -> None:
    """What packs or places a weight knows by the object that it is the other entries' as well."""
    _, networks = load_batches(tmp_path, (8, 16))
    merged = merge_entries(network.module for network in networks).module
    added = add_entry(networks[0].module, networks[1].module)
    alone = weights_of(networks[0].module, ["main"])
    assert weights_of(merged, ["main"]) == weights_of(merged, ["main_1"])
    assert weights_of(added, ["main"]) == weights_of(added, ["main_1"])
    assert len(weights_of(added, ["main"])) == len(alone) == 3


def weights_of(module: tvm.IRModule, entries: Sequence[str]) -> set[int]:
    constants = [node for entry in entries for node in walk(module[entry].body)]
    return {
        node.value.__chandle__()
        for node in constants
        if isinstance(node, tvm.ir.GenericConst) and len(node.value.shape) == 2 and min(node.value.shape) > 1
    }


def test_equal_networks_share_their_kernels_and_stay_two_entries(tmp_path: Path) -> None:
    _, networks = load_batches(tmp_path, (4, 4))
    merged = merge_entries(network.module for network in networks)
    assert merged.kernel_names[0] == merged.kernel_names[1]
    assert entry_names(merged.module) == ["main", "main_1"]
    alone = {kernel.name: kernel.weight for kernel in primfunc_workloads(networks[0].module)}
    both = {kernel.name: kernel.weight for kernel in primfunc_workloads(merged.module)}
    assert both == {name: 2 * weight for name, weight in alone.items()}


def test_other_kernels_of_one_name_get_other_names(tmp_path: Path) -> None:
    _, networks = load_batches(tmp_path, (4, 8))
    merged = merge_entries(network.module for network in networks)
    first, second = merged.kernel_names
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())
    assert {kernel.name for kernel in primfunc_workloads(merged.module)} == {
        *first.values(),
        *second.values(),
    }


def test_a_module_with_other_relax_functions_is_refused() -> None:
    builder = relax.BlockBuilder()
    for name in ("main", "other"):
        x = relax.Var("x", relax.TensorType((1,), "float32"))
        with builder.function(name, [x]):
            builder.emit_func_output(x)
    with pytest.raises(InvariantError, match="other"):
        merge_entries([builder.get()])


def test_an_entry_gets_kernels_of_its_own(tmp_path: Path) -> None:
    path, networks = load_batches(tmp_path, (4, 4, 8))
    merged = merge_entries(network.module for network in networks).module
    apart = with_own_kernels(merged, ["main_1"])
    assert entry_names(apart) == entry_names(merged)
    of_entries = [{name for name, _ in kernel_calls(apart[entry].body)} for entry in entry_names(apart)]
    assert not of_entries[1] & (of_entries[0] | of_entries[2])
    assert of_entries[0] == {name for name, _ in kernel_calls(merged["main"].body)}
    library = tmp_path / "apart.so"
    build_model(apart, UNOPTIMISED, library, default_schedules=False)
    inputs = random_inputs(networks[1].inputs, seed=1)
    for entry in ("main", "main_1"):
        (output,) = library_outputs(library, entry, inputs)
        np.testing.assert_allclose(
            output, reference_outputs(path, networks[1], inputs)[0], rtol=1e-4, atol=1e-6
        )
