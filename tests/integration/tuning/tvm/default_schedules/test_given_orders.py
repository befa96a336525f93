"""Default schedules that read weights in the order in which another kernel has them packed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from scheduled_networks import Net, conv, dense, kernels_of, run
from tvm import tirx

from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedule
from tunefarm_tuning.tvm.kernels.weight_packing import (
    Packing,
    contiguous_run,
    packable_weights,
    panel_order,
    with_given_orders,
)
from tunefarm_tuning.tvm.tasks.extract import kernel_args

HOST = parse_target("host")


def nested(*at: Any) -> list[Any]:
    """The order that a search may find: tiles of 32 columns and 4 rows, of vectors of 16 columns."""
    rows, columns = at[-2:]
    return [columns // 32, *at[:-2], rows // 4, columns % 32 // 16, rows % 4, columns % 16]


def by_columns(*at: Any) -> list[Any]:
    return [at[-1], *at[:-1]]


ORDERS: dict[str, Callable[[int], tirx.IndexMap]] = {
    "panels": lambda rank: panel_order(rank, 16),
    "nested": lambda rank: tirx.IndexMap.from_func(nested, ndim=rank, index_dtype="int64"),
    "columns": lambda rank: tirx.IndexMap.from_func(by_columns, ndim=rank, index_dtype="int64"),
}


def test_the_run_of_an_order_is_that_of_its_vectors() -> None:
    runs = {name: contiguous_run(order(2), (64, 96)) for name, order in ORDERS.items()}
    assert runs == {"panels": 16, "nested": 16, "columns": 1}
    assert contiguous_run(panel_order(2, 96), (64, 96)) == 32, "a power of two that divides the columns"


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("order", ["panels", "nested"])
@pytest.mark.parametrize("net", [conv((1, 64, 9, 11), 160, 3), dense((20, 64), 96)])
def test_a_kernel_reads_weights_as_they_lie_for_another(net: Net, order: str, tmp_path: Path) -> None:
    kernel = next(item for item in kernels_of(net, tmp_path, HOST) if packable_weights(item.module["main"]))
    func = kernel.module["main"]
    (number,) = packable_weights(func)
    shape = tuple(int(size) for size in func.params[number].ty.shape)
    index_map = ORDERS[order](len(shape))
    given = Packing(
        shape=shape,
        packed_shape=tuple(int(size) for size in index_map.map_shape(list(shape))),
        dtype="float32",
        index_map=index_map,
    )
    packed = packed_default_schedule(with_given_orders(func, {number: given}), HOST)
    assert packed.packings[number].is_same_as(given)
    expected = run(kernel, tmp_path, HOST, default_schedules=False)
    build_kernel(packed, HOST, tmp_path / "packed.so")
    library = tvm.runtime.load_module(str(tmp_path / "packed.so"))
    arrays = random_inputs(kernel_args(kernel.module), seed=3, kind=InputKind.POSITIVE)
    args = [tvm.runtime.tensor(array) for array in arrays]
    weight, args[number] = args[number], tvm.runtime.empty(shape, "float32")
    library[f"pack_{number}"](weight, args[number])
    library["main"](*args)
    np.testing.assert_allclose(args[-1].numpy(), expected[-1], rtol=1e-4, atol=1e-4)


def test_an_order_that_no_vector_can_be_read_in_is_left(tmp_path: Path) -> None:
    net = dense((20, 512), 512)
    kernel = next(item for item in kernels_of(net, tmp_path, HOST) if packable_weights(item.module["main"]))
    func = kernel.module["main"]
    given = Packing(
        shape=(512, 512), packed_shape=(512, 512), dtype="float32", index_map=ORDERS["columns"](2)
    )
    packed = packed_default_schedule(with_given_orders(func, {1: given}), HOST)
    assert not packed.packings[1].is_same_as(given)
