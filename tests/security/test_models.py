"""Model files that make a compiler write where it should not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning import import_model
from tunefarm_tuning.core.errors import InvalidModelError

FAR = 1 << 27


def model(index: np.ndarray, *computed: onnx.NodeProto, operator: str = "ScatterND") -> onnx.ModelProto:
    """Return a network that scatters into a constant, or gathers of it, after a node that ONNX Runtime cannot run on drawn inputs.

    That node reads an index of an input beyond its table, whatever is drawn, which may be right for real samples: the network is
    accepted for it, and nothing after it is run.
    """
    constants = {
        "data": np.zeros((5000, 4), np.float32),
        "update": np.ones((1, 4), np.float32),
        "index": index,
        "table": np.zeros(2, np.float32),
        "five": np.array(5, np.int64),
        "million": np.array(1_000_000, np.int64),
    }
    inputs = ["data", computed[-1].output[0] if computed else "index"]
    inputs += ["update"] if operator == "ScatterND" else []
    nodes = [
        helper.make_node("Add", ["n", "five"], ["beyond"]),
        helper.make_node("Gather", ["table", "beyond"], ["looked-up"]),
        helper.make_node("ReduceSum", ["looked-up"], ["sum"], keepdims=0),
        *computed,
        helper.make_node(operator, inputs, ["touched"], name="touches"),
        helper.make_node("ReduceSum", ["touched"], ["total"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["first"]),
        helper.make_node("Add", ["first", "total"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4)),
            helper.make_tensor_value_info("n", TensorProto.INT64, (1,)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(path: Path, network: onnx.ModelProto) -> Path:
    path.write_bytes(network.SerializeToString())
    return path


POINT = np.array([[1]], np.int64)
SHAPE = helper.make_node("Shape", ["x"], ["shape"])
ATTACKS = {
    "stands in the file": model(np.array([[FAR]], np.int64)),
    "negative": model(np.array([[-FAR]], np.int64)),
    "computed of constants": model(POINT, helper.make_node("Mul", ["index", "million"], ["far"])),
    "computed where nothing is folded early": model(
        np.array([[FAR]], np.float32),
        helper.make_node("Erf", ["index"], ["unit"]),
        helper.make_node("Mul", ["index", "unit"], ["product"]),
        helper.make_node("Cast", ["product"], ["far"], to=TensorProto.INT64),
    ),
    "computed of an input's shape": model(
        POINT,
        SHAPE,
        helper.make_node("ReduceProd", ["shape"], ["elements"], keepdims=1, axes=[0]),
        helper.make_node("Mul", ["elements", "million"], ["sizes"]),
        helper.make_node("Reshape", ["sizes", "one-by-one"], ["far"]),
    ),
    "read": model(np.array([FAR], np.int64), operator="Gather"),
}
ATTACKS["computed of an input's shape"].graph.initializer.append(
    numpy_helper.from_array(np.array([1, 1], np.int64), "one-by-one")
)


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("how", ATTACKS)
def test_an_index_out_of_range_never_reaches_native_code(how: str, tmp_path: Path) -> None:
    """Before, most of these ended the import's child with SIGSEGV: it had written, or read, half a gigabyte behind a tensor."""
    with pytest.raises(InvalidModelError) as caught:
        import_model(written(tmp_path / "model", ATTACKS[how]))
    assert caught.value.code in ("index-out-of-range", "cannot-run"), caught.value.message
    assert "touches" in caught.value.message


def test_an_index_that_onnx_runtime_computes_otherwise_than_tvm_never_reaches_native_code(
    tmp_path: Path,
) -> None:
    """Before, this ended the import's child with SIGSEGV: what one of both rounds otherwise, times 1e16, is an index far off."""
    angles = np.linspace(0.1, 2, 997).astype(np.float32)
    computed = [
        helper.make_node("Tanh", ["angles"], ["tanh"]),
        helper.make_node("Sub", ["tanh", "expected"], ["rounding"]),
        helper.make_node("Abs", ["rounding"], ["size"]),
        helper.make_node("ReduceMax", ["size"], ["largest"], keepdims=1),
        helper.make_node("Mul", ["largest", "factor"], ["product"]),
        helper.make_node("Reshape", ["product", "one-by-one"], ["point"]),
        helper.make_node("Cast", ["point"], ["far"], to=TensorProto.INT64),
    ]
    scatters = model(POINT, *computed)
    del (
        scatters.graph.node[:3],
        scatters.graph.node[-2],
    )  # what ONNX Runtime cannot run: here it runs, and finds the index 0
    scatters.graph.node[-1].input[0] = "x"
    del scatters.graph.input[1]
    constants = {
        "angles": angles,
        "expected": tanh_of_onnx_runtime(angles),
        "factor": np.array(1e16, np.float32),
        "one-by-one": np.array([1, 1], np.int64),
    }
    scatters.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants.items()
    )
    accepted = import_model(written(tmp_path / "model", scatters))
    assert [spec.name for spec in accepted.outputs] == ["y"]


def tanh_of_onnx_runtime(angles: np.ndarray) -> np.ndarray:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, angles.shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "net", values[:1], values[1:])
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {"x": angles})[0]
    return result


def test_the_network_without_the_attack_is_accepted(tmp_path: Path) -> None:
    accepted = import_model(written(tmp_path / "model", model(POINT)))
    assert [spec.name for spec in accepted.outputs] == ["y"]
