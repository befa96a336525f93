"""Any number of samples through artifacts of batch 1 and of batch 4."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from odd_net import build_odd
from onnx import TensorProto, helper
from plain_artifacts import plain_artifact
from repository import ROOT

from tunefarm_tuning.artifact.loader import ArtifactInputError, TunedModel, load

EXAMPLE = ROOT / "examples" / "tiny_convnet.py"


def examples() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_tiny_convnet", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_two() -> onnx.ModelProto:
    """Return a network of two inputs, of batch 2."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Mul", ["a", "b"], ["y"]), helper.make_node("Neg", ["a"], ["z"])], "two",
        [value("a", TensorProto.FLOAT, (2, 3)), value("b", TensorProto.FLOAT, (2, 1))],
        [value("y", TensorProto.FLOAT, (2, 3)), value("z", TensorProto.FLOAT, (2, 3))],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TunedModel]:
    folder = tmp_path_factory.mktemp("batches")
    build = examples().build_tiny_mlp
    networks = {"1": build(batch=1), "4": build(batch=4), "two": build_two(), "odd": build_odd()}
    return {name: load(plain_artifact(net, folder / f"{name}.tunefarm")) for name, net in networks.items()}


@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_arrays_and_iterables(models: dict[str, TunedModel], count: int) -> None:
    data = np.random.default_rng(count).standard_normal((count, 64)).astype(np.float32)
    one_by_one = [models["1"](row[None])["y"] for row in data]
    expected = np.concatenate(one_by_one) if one_by_one else np.zeros((0, 10), np.float32)
    for name in ("1", "4"):
        model = models[name]
        for batch in (data, {"x": data}, list(data), (row for row in data), [{"x": row} for row in data]):
            result = model.batched(batch)
            assert list(result) == ["y"]
            assert result["y"].shape == (count, 10)
            assert result["y"].dtype == np.float32
            np.testing.assert_allclose(result["y"], expected, rtol=1e-5, atol=1e-5)


def test_several_inputs(models: dict[str, TunedModel]) -> None:
    a = np.arange(15, dtype=np.float32).reshape(5, 3)
    b = np.arange(5, dtype=np.float32).reshape(5, 1)
    for batch in (
        {"a": a, "b": b},
        list(zip(a, b, strict=True)),
        ({"b": y, "a": x} for x, y in zip(a, b, strict=True)),
    ):
        result = models["two"].batched(batch)
        np.testing.assert_array_equal(result["y"], a * b)
        np.testing.assert_array_equal(result["z"], -a)


A, B = np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)


@pytest.mark.parametrize(
    ("name", "feeds", "message"),
    [
        ("1", np.zeros((3, 65), np.float32), r"'x' has shape \[3, 65\], but a batch of samples \[64\] is required: \[N, 64\]"),
        ("1", np.zeros((), np.float32), r"'x' has shape \[\], but"),
        ("1", np.zeros((3, 64)), "'x' is float64, but the model takes float32"),
        ("1", [np.zeros((64,))], r"a sample of input 'x' is float64 \[64\], but float32 \[64\] is required"),
        ("1", [np.zeros((1, 64), np.float32)], r"a sample of input 'x' is float32 \[1, 64\]"),
        ("1", {"y": np.zeros((3, 64), np.float32)}, "the inputs given are 'y', but the model has 'x'"),
        ("1", 3, "int is neither an array nor an iterable"),
        ("two", A, "give an array for each of the model's inputs, by name"),
        ("two", {"a": A}, "the inputs given are 'a', but"),
        ("two", {"a": A, "b": B[:3]}, "the inputs have different numbers of samples: 4 of 'a', 3 of 'b'"),
        ("two", [(A[0],)], "a tuple, of the model's 2 inputs"),
        ("two", [{"a": A[0]}], "the inputs given are 'a', but"),
        ("odd", [], "not all of its inputs and outputs have the same first axis"),
    ],
)  # fmt: skip
def test_what_cannot_be(models: dict[str, TunedModel], name: str, feeds: Any, message: str) -> None:
    with pytest.raises(ArtifactInputError, match=message):
        models[name].batched(feeds)
