"""Divisions of integers, whose divisors the run decides, never end the process: results are NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, library_outputs

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def loaded(
    folder: Path,
    dtype: str,
    divisors: NDArray[Any] | None = None,
    *,
    shapes: tuple[Sequence[int], Sequence[int]] = ((2, 3), (3,)),
) -> RelaxNetwork:
    """Load a network of a quotient and two remainders; `divisors` are constants, or its second input."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    g = GraphBuilder()
    x = g.input("x", list(shapes[0]), kind)
    d = g.input("d", list(shapes[1]), kind) if divisors is None else g.constant(divisors)
    for node in (g.node("Div", x, d), g.node("Mod", x, d), g.node("Mod", x, d, fmod=1)):
        g.output(node, dtype=kind)
    path = folder / "model"
    path.write_bytes(g.model().SerializeToString())
    return load_relax(path, Binding(), parse_target("host"))


def expected(x: NDArray[Any], d: NDArray[Any]) -> list[NDArray[Any]]:
    """Return what NumPy computes: quotients are cut, not floored, and wrap; of a division by zero, 0."""
    with np.errstate(all="ignore"):
        wide = [value.astype(object) for value in np.broadcast_arrays(x, d)]
        pairs = list(zip(*(value.ravel() for value in wide), strict=True))
        cut = [0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
        bits = 8 * x.dtype.itemsize
        quotients = np.array([value % 2**bits for value in cut], f"uint{bits}").astype(x.dtype)
        return [quotients.reshape(x.shape), np.mod(x, d), np.fmod(x, d)]


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_divisors_may_be_zero_and_quotients_overflow(dtype: str, tmp_path: Path) -> None:
    low = np.iinfo(dtype).min
    x = np.array([[low, 100, low], [7, low, 0]], dtype)
    overflow = np.array([-1, 3, -3] if low else [1, 3, 2], dtype)
    network = loaded(tmp_path, dtype)
    for d in (overflow, np.array([0, 5, 0], dtype)):
        for ours, theirs in zip(built_outputs(network, [x, d], tmp_path), expected(x, d), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("shapes", [((), ()), ((), (3,)), ((3,), ())], ids=["scalars", "dividend", "divisor"])
def test_scalars_overflow_as_vectors_do(
    dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], tmp_path: Path
) -> None:
    """TVM takes a scalar of int32 for one that is never the smallest number."""
    x, d = (
        np.full(shape, value, dtype) for shape, value in zip(shapes, (np.iinfo(dtype).min, -1), strict=True)
    )
    outputs = built_outputs(loaded(tmp_path, dtype, shapes=shapes), [x, d], tmp_path)
    wanted = expected(*np.broadcast_arrays(x, d))
    for ours, theirs in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("dtype", SIGNED)
def test_constant_divisors_of_minus_one_do_not_overflow(dtype: str, tmp_path: Path) -> None:
    d = np.array([-1, 2, -1], dtype)
    x = np.array([[np.iinfo(dtype).min, 7, 5]] * 2, dtype)
    outputs = built_outputs(loaded(tmp_path, dtype, d), [x], tmp_path)
    for ours, theirs in zip(outputs, expected(x, d), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_optimised_code_keeps_the_guards(tmp_path: Path) -> None:
    network = loaded(tmp_path, "int32")
    build_model(network.module, parse_target("host"), tmp_path / "network.so")
    x = np.array([[-(2**31), 2**31 - 1, 5]] * 2, np.int32)
    d = np.array([-1, -1, 0], np.int32)
    outputs = library_outputs(tmp_path / "network.so", "main", [x, d])
    for ours, theirs in zip(outputs, expected(x, d), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_other_constant_divisors_get_no_guards(tmp_path: Path) -> None:
    text = loaded(tmp_path, "int64", np.array([3, 4, -7])).module.script()
    assert "Select" not in text
    assert "if_then_else" not in text
