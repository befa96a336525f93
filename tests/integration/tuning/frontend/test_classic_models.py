"""Support-vector machines, encoders and maps of scores, as scikit-learn's converters write them, compute what ONNX Runtime computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx_models import GraphBuilder
from onnx_reference import UNOPTIMISED, built_outputs

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.check_child import inspect_file
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

ML = {"domain": "ai.onnx.ml"}
COLUMNS = 4
KERNELS = {
    "LINEAR": [0.0, 0.0, 0.0],
    "POLY": [0.5, 1.0, 3.0],
    "RBF": [0.3, 0.0, 0.0],
    "SIGMOID": [0.2, 0.1, 0.0],
}


def saved(g: GraphBuilder, folder: Path, ml_opset: int = 1) -> Path:
    model = g.model()
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", ml_opset))
    path = folder / "model"
    path.write_bytes(model.SerializeToString())
    return path


def check(path: Path, feeds: dict[str, NDArray[Any]], folder: Path) -> None:
    expected = onnxruntime.InferenceSession(path).run(None, feeds)
    outputs = built_outputs(load_relax(path, Binding(), UNOPTIMISED), list(feeds.values()), folder)
    for output, other in zip(outputs, expected, strict=True):
        assert (output.shape, output.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(output, other, rtol=1e-5, atol=2e-6)


def machine(seed: int, supports: list[int], kernel: str) -> dict[str, Any]:
    """Return the attributes of a classifier with some vectors of each class."""
    rng, classes, count = np.random.default_rng(seed), len(supports), sum(supports)
    pairs = classes * (classes - 1) // 2
    return {
        "classlabels_ints": [10 * (number + 1) for number in range(classes)],
        "vectors_per_class": supports,
        "support_vectors": rng.normal(size=count * COLUMNS).tolist(),
        "coefficients": rng.normal(size=count * (classes - 1)).tolist(),
        "rho": rng.normal(size=pairs).tolist(),
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
    }


def classify(g: GraphBuilder, x: str, **attributes: Any) -> None:
    label, scores = g.node("SVMClassifier", x, outputs=2, **attributes, **ML)
    g.output(label, None, TensorProto.INT64)
    g.output(scores)


def test_support_vector_classifiers(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [8, COLUMNS])
    rng = np.random.default_rng(3)
    for seed, kernel in enumerate(KERNELS):
        classify(g, x, **machine(seed, [2, 3, 1, 2] if kernel == "RBF" else [2, 3], kernel))
    for supports in ([2, 3], [2, 3, 1]):
        pairs = len(supports) * (len(supports) - 1) // 2
        sigmoids = {name: rng.normal(size=pairs).tolist() for name in ("prob_a", "prob_b")}
        classify(g, x, **machine(7, supports, "RBF"), **sigmoids)
    classify(g, x, **machine(7, [2, 3, 1], "LINEAR"), post_transform="SOFTMAX")
    for labels in ([3, 5], [3, 5, 9]):
        coefficients = rng.normal(size=len(labels) * COLUMNS).tolist()
        classify(g, x, classlabels_ints=labels, coefficients=coefficients, rho=[0.2], kernel_params=[0.0] * 3)
    classify(g, x, classlabels_ints=[3, 5], coefficients=[0.3] * 8, rho=[0.2], kernel_params=[0.0] * 3)
    check(saved(g, tmp_path), {"x": rng.normal(size=(8, COLUMNS)).astype(np.float32)}, tmp_path)


def test_support_vector_regressors(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [8, COLUMNS])
    rng = np.random.default_rng(3)
    vectors = {"support_vectors": rng.normal(size=5 * COLUMNS).tolist(), "n_supports": 5}
    machines = [{**vectors, "kernel_type": kernel, "kernel_params": KERNELS[kernel]} for kernel in KERNELS]
    machines += [{**machines[2], "one_class": 1}, {"n_supports": 0, "kernel_params": [0.0] * 3}]
    for attributes in machines:
        coefficients = rng.normal(size=attributes["n_supports"] or COLUMNS).tolist()
        g.output(g.node("SVMRegressor", x, coefficients=coefficients, rho=[0.1], **attributes, **ML))
    check(saved(g, tmp_path), {"x": rng.normal(size=(8, COLUMNS)).astype(np.float32)}, tmp_path)


def test_encoders_of_numbers(tmp_path: Path) -> None:
    g = GraphBuilder()
    integers = g.input("integers", [2, 3], TensorProto.INT64)
    floats = g.input("floats", [2, 3])
    for x in (integers, floats):
        g.output(g.node("OneHotEncoder", x, cats_int64s=[4, -1, 2], zeros=1, **ML))
    g.output(g.node("LabelEncoder", integers, keys_int64s=[4, 2, 4], values_floats=[0.5, 1.5, 9.0], **ML))
    keys = {"keys_floats": [2.5, 2.0], "values_int64s": [7, 8], "default_int64": 3}
    g.output(g.node("LabelEncoder", floats, **keys, **ML), None, TensorProto.INT64)
    g.output(g.node("FeatureVectorizer", floats, floats, inputdimensions=[3, 3], **ML))
    feeds = {
        "integers": np.array([[4, 2, 7], [-1, 4, 0]]),
        "floats": np.array([[2.5, np.nan, 4.9], [-1.5, 2.0, 0]], np.float32),
    }
    check(saved(g, tmp_path, ml_opset=2), feeds, tmp_path)


def test_label_encoders_of_tensors(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [4], TensorProto.DOUBLE)
    keys, values, default = (
        numpy_helper.from_array(array)
        for array in (np.array([0.1, np.nan]), np.array([7, 9], np.int32), np.array([5], np.int32))
    )
    tensors = {"keys_tensor": keys, "values_tensor": values, "default_tensor": default}
    g.output(g.node("LabelEncoder", x, **tensors, **ML), None, TensorProto.INT32)
    model = g.model()
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    path = tmp_path / "model"
    path.write_bytes(model.SerializeToString())
    outputs = built_outputs(
        load_relax(path, Binding(), UNOPTIMISED), [np.array([np.nan, 0.1, 0.2, -1])], tmp_path
    )
    assert outputs[0].tolist() == [9, 7, 5, 5]


def test_transforms_of_scores(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [3, 3])
    options = {
        "coefficients": np.eye(3).reshape(-1).tolist(),
        "intercepts": [0.0] * 3,
        "classlabels_ints": [0, 1, 2],
    }
    for transform in ("PROBIT", "SOFTMAX_ZERO", "SOFTMAX", "LOGISTIC"):
        g.output(g.node("LinearClassifier", x, outputs=2, post_transform=transform, **options, **ML)[1])
    values = np.array([[0.2, 0.7, 0.1], [0.5, 0.0, 0.9], [0.3, 0.3, 0.4]], np.float32)
    check(saved(g, tmp_path), {"x": values}, tmp_path)


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("SVMRegressor", {"coefficients": [1.0], "rho": [0.0]}, "does not fit 1 coefficients"),
        ("SVMRegressor", {"coefficients": [1.0] * COLUMNS}, "rho has 0 numbers"),
        (
            "SVMRegressor",
            {"coefficients": [1.0, 2.0], "rho": [0.0], "n_supports": 2, "support_vectors": [0.0] * 5},
            "5 numbers for 2 vectors",
        ),
        (
            "SVMRegressor",
            {"n_supports": 1, "support_vectors": [0.0] * COLUMNS, "kernel_type": "LAPLACE"},
            "kernel_type 'LAPLACE'; supported are LINEAR",
        ),
        (
            "SVMClassifier",
            {"classlabels_ints": range(65_000), "vectors_per_class": [1] * 65_000},
            "rho has 0 numbers; it needs 2112467500",
        ),
        (
            "SVMClassifier",
            {"classlabels_ints": range(600), "vectors_per_class": [1] * 600, "rho": [0.0] * 179_700},
            "179700 pairs of 600 classes times 600 .* limit is 67108864",
        ),
        ("OneHotEncoder", {"cats_strings": ["a", "b"]}, "strings are not supported"),
        ("LabelEncoder", {"keys_int64s": [1], "values_int64s": [1]}, "keys of int64"),
        ("LabelEncoder", {"keys_floats": [np.nan], "values_int64s": [1]}, "NaN is a key"),
    ],
)
def test_what_does_not_fit_is_refused(
    operator: str, attributes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    g = GraphBuilder()
    g.output(g.node(operator, g.input("x", [2, COLUMNS]), **attributes, **ML))
    with pytest.raises(InvalidModelError, match=message):
        load_relax(saved(g, tmp_path, ml_opset=2), Binding(), UNOPTIMISED)


def test_too_many_comparisons_with_keys_are_refused(tmp_path: Path) -> None:
    g = GraphBuilder()
    keys = {"keys_int64s": range(8192), "values_int64s": range(8192)}
    x = g.input("x", [2, 4097], TensorProto.INT64)
    g.output(g.node("LabelEncoder", x, **keys, **ML), None, TensorProto.INT64)
    with pytest.raises(InvalidModelError, match="8192 keys for 8194 numbers; the limit"):
        load_relax(saved(g, tmp_path, ml_opset=2), Binding(), UNOPTIMISED)


def with_maps(model: onnx.ModelProto, output: int) -> onnx.ModelProto:
    """Return the model with one of its outputs as a sequence of maps, as `ZipMap` makes it."""
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    model.graph.output[output].type.CopyFrom(helper.make_sequence_type_proto(kind))
    return model


def test_maps_of_scores_become_tensors(tmp_path: Path) -> None:
    """A file of a classifier as it is converted without options returns a sequence of maps."""
    g = GraphBuilder()
    x = g.input("x", [3, 2])
    options = {"coefficients": [0.1, 0.2, -0.3, 0.4], "intercepts": [0.1, 0.0], "classlabels_ints": [5, 8]}
    label, scores = g.node("LinearClassifier", x, outputs=2, post_transform="SOFTMAX", **options, **ML)
    maps = g.node("ZipMap", scores, classlabels_int64s=[5, 8], **ML)
    g.output(label, None, TensorProto.INT64)
    g.output(maps)
    path = tmp_path / "model"
    path.write_bytes(with_maps(g.model(), 1).SerializeToString())
    values = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    expected = onnxruntime.InferenceSession(path).run(None, {"x": values})
    outputs = built_outputs(load_relax(path, Binding(), UNOPTIMISED), [values], tmp_path)
    np.testing.assert_array_equal(outputs[0], expected[0])
    np.testing.assert_allclose(outputs[1], [[row[5], row[8]] for row in expected[1]], rtol=1e-6)
    described = inspect_file(str(path), Binding(), max_nodes=100, max_tensor_bytes=1 << 20)
    assert described["operators"] == [("Constant", 1), ("Reshape", 1), ("ai.onnx.ml.LinearClassifier", 1)]


def test_a_vector_of_scores_is_one_map(tmp_path: Path) -> None:
    g = GraphBuilder()
    g.output(g.node("ZipMap", g.node("Abs", g.input("x", [3])), classlabels_int64s=[1, 2, 7], **ML))
    g.output(g.node("Abs", "x"))
    path = tmp_path / "model"
    path.write_bytes(with_maps(g.model(), 0).SerializeToString())
    values = np.array([0.5, -2, 3], np.float32)
    maps = onnxruntime.InferenceSession(path).run(None, {"x": values})[0]
    scores = built_outputs(load_relax(path, Binding(), UNOPTIMISED), [values], tmp_path)[0]
    assert [list(row) for row in scores] == [list(scores_of.values()) for scores_of in maps]
