"""Decision trees, and what scikit-learn's converters put around them, compute what ONNX Runtime computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnx_reference import UNOPTIMISED, built_outputs

from tunefarm_tuning import ImportLimits, import_model
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

ML = {"domain": "ai.onnx.ml"}
COLUMNS = 5
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@dataclass(slots=True)
class Trees:
    """Random trees in the attributes of the older operators; features are whole numbers, so that comparisons are often equal."""

    kind: str
    targets: int
    seed: int = 0
    modes: tuple[str, ...] = MODES
    attributes: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
        rows: list[tuple[Any, ...]] = []
        leaves: list[tuple[Any, ...]] = []
        tracks: list[int] = []
        for tree in range(19):
            count, waiting = 1, [(0, 0)]
            while waiting:
                node, depth = waiting.pop()
                tracks.append(int(rng.integers(2)))
                if depth == tree % 6 or (depth and rng.random() < 0.2):
                    rows.append((tree, node, 0, "LEAF", 0.0, 0, 0))
                    chosen = rng.permutation(self.targets)[: 1 + int(rng.integers(self.targets))]
                    leaves += [(tree, node, int(target), float(rng.normal())) for target in chosen]
                    continue
                split = (int(rng.integers(COLUMNS)), str(rng.choice(self.modes)), float(rng.integers(-3, 4)))
                rows.append((tree, node, *split, count, count + 1))
                waiting += [(count, depth + 1), (count + 1, depth + 1)]
                count += 2
        self.attributes = {
            f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
        }
        self.attributes["nodes_missing_value_tracks_true"] = tracks
        parts = ("treeids", "nodeids", "ids", "weights")
        for name, column in zip(parts, zip(*leaves, strict=True), strict=True):
            self.attributes[f"{self.kind}_{name}"] = list(column)


def rows(count: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, (count, COLUMNS)).astype(np.float32)
    x[rng.random(x.shape) < 0.15] = np.nan
    return x


def regression(
    x: NDArray[Any], trees: dict[str, list[Any]], targets: int = 1, **options: Any
) -> onnx.ModelProto:
    g = GraphBuilder()
    name = g.input("x", list(x.shape), onnx.helper.np_dtype_to_tensor_dtype(x.dtype))
    g.output(g.node("TreeEnsembleRegressor", name, n_targets=targets, **trees, **options, **ML))
    return g.model()


def check(model: onnx.ModelProto, x: NDArray[Any], folder: Path) -> None:
    path = folder / "model"
    path.write_bytes(model.SerializeToString())
    expected = onnxruntime.InferenceSession(path).run(None, {"x": x})
    outputs = built_outputs(load_relax(path, Binding(), UNOPTIMISED), [x], folder)
    for output, other in zip(outputs, expected, strict=True):
        assert (output.shape, output.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(output, other, rtol=1e-6, atol=1e-6)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("count", [1, 40, 43])
@pytest.mark.parametrize(
    ("targets", "options"),
    [
        (1, {"base_values": [0.5]}),
        (1, {"aggregate_function": "AVERAGE"}),
        (3, {"base_values": [0.5, -1.0, 0.0]}),
    ],
)
def test_regressions(count: int, targets: int, options: dict[str, Any], tmp_path: Path) -> None:
    x = rows(count)
    check(regression(x, Trees("target", targets).attributes, targets, **options), x, tmp_path)


def test_float64_is_compared_with_splits_as_float64(tmp_path: Path) -> None:
    """0.1 and the float32 that is next to it are on different sides of such a split."""
    x = rows(40).astype(np.float64) / 10
    trees = Trees("target", 1, seed=5).attributes
    trees["nodes_values"] = [value / 10 for value in trees["nodes_values"]]
    check(regression(x, trees), x, tmp_path)


def test_splits_that_are_not_finite(tmp_path: Path) -> None:
    x = rows(40)
    x[x == 4], x[x == -4] = np.inf, -np.inf
    g = GraphBuilder()
    name = g.input("x", list(x.shape))
    for mode in MODES:
        for split in (np.inf, -np.inf, np.nan):
            trees = Trees("target", 1, seed=6, modes=(mode,)).attributes
            trees["nodes_values"] = [split] * len(trees["nodes_values"])
            g.output(g.node("TreeEnsembleRegressor", name, n_targets=1, **trees, **ML))
    check(g.model(), x, tmp_path)


def test_membership_of_sets(tmp_path: Path) -> None:
    """Sets of three members, of one and of two, below each other; what follows the first is a subtree."""
    g = GraphBuilder()
    x = rows(40)
    name = g.input("x", list(x.shape))
    nan = float("nan")
    g.output(
        g.node(
            "TreeEnsemble",
            name,
            n_targets=2,
            tree_roots=[0],
            nodes_modes=onnx.numpy_helper.from_array(np.array([6, 6, 0, 6], np.uint8)),
            nodes_featureids=[0, 1, 2, 3],
            nodes_splits=onnx.numpy_helper.from_array(np.array([nan, nan, 1.0, nan], np.float32)),
            nodes_truenodeids=[2, 2, 0, 4],
            nodes_trueleafs=[0, 1, 1, 1],
            nodes_falsenodeids=[1, 3, 1, 3],
            nodes_falseleafs=[0, 0, 1, 1],
            nodes_missing_value_tracks_true=[1, 0, 0, 1],
            membership_values=onnx.numpy_helper.from_array(
                np.array([-2, 1, 3, nan, 2, nan, 0, 4, nan], np.float32)
            ),
            leaf_targetids=[0, 1, 0, 1, 0],
            leaf_weights=onnx.numpy_helper.from_array(np.array([1, 2, 4, 8, 16], np.float32)),
            **ML,
        )
    )
    model = g.model()
    next(entry for entry in model.opset_import if entry.domain == ML["domain"]).version = 5
    check(model, x, tmp_path)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("labels", [[7, 3, 5], [4, 9]])
def test_classes_of_which_each_has_weights(labels: list[int], transform: str, tmp_path: Path) -> None:
    g = GraphBuilder()
    trees = Trees("class", len(labels), seed=3).attributes
    x = g.input("x", [16, COLUMNS])
    options = {"classlabels_int64s": labels, "post_transform": transform}
    label, scores = g.node("TreeEnsembleClassifier", x, outputs=2, **trees, **options, **ML)
    g.output(label, None, TensorProto.INT64)
    g.output(scores)
    check(g.model(), rows(16), tmp_path)


@pytest.mark.parametrize(("transform", "is_positive"), [("NONE", True), ("NONE", False), ("LOGISTIC", False)])
def test_two_classes_of_which_one_has_weights(transform: str, is_positive: bool, tmp_path: Path) -> None:
    """As XGBoost and LightGBM export them; ONNX leaves open what the other class' score is."""
    g = GraphBuilder()
    trees = Trees("class", 1, seed=4).attributes
    if is_positive:
        trees["class_weights"] = [abs(weight) / 10 for weight in trees["class_weights"]]
    x = g.input("x", [16, COLUMNS])
    options = {"classlabels_int64s": [0, 1], "post_transform": transform}
    label, scores = g.node("TreeEnsembleClassifier", x, outputs=2, **trees, **options, **ML)
    g.output(label, None, TensorProto.INT64)
    g.output(scores)
    check(g.model(), rows(16), tmp_path)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("bases", [[], [0.3]])
@pytest.mark.parametrize(
    ("transform", "is_positive"), [("NONE", True), ("LOGISTIC", False), ("SOFTMAX", False)]
)
def test_two_classes_of_which_the_second_has_weights(
    transform: str, is_positive: bool, bases: list[float], tmp_path: Path
) -> None:
    g = GraphBuilder()
    trees = Trees("class", 1, seed=4).attributes
    trees["class_ids"] = [1] * len(trees["class_ids"])
    if is_positive:
        trees["class_weights"] = [abs(weight) / 10 for weight in trees["class_weights"]]
    x = g.input("x", [16, COLUMNS])
    options: dict[str, Any] = {"classlabels_int64s": [3, 8], "post_transform": transform}
    options |= {"base_values": bases} if bases else {}
    label, scores = g.node("TreeEnsembleClassifier", x, outputs=2, **trees, **options, **ML)
    g.output(label, None, TensorProto.INT64)
    g.output(scores)
    check(g.model(), rows(16), tmp_path)


def test_classifiers_and_scalings_of_scikit_learn(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [4, 3])
    filled = g.node(
        "Imputer", x, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"), **ML
    )
    for norm in ("MAX", "L1", "L2"):
        g.output(g.node("Normalizer", filled, norm=norm, **ML))
    options = {"coefficients": [0.1, 0.2, -0.3] * 2, "intercepts": [0.1, 0.0], "classlabels_ints": [5, 8]}
    label, scores = g.node("LinearClassifier", filled, outputs=2, post_transform="SOFTMAX", **options, **ML)
    g.output(label, None, TensorProto.INT64)
    g.output(scores)
    x_values = np.array([[0, 0, 0], [np.nan, 1, 2], [3, -1, np.nan], [5, 5, 5]], np.float32)
    check(g.model(), x_values, tmp_path)


def dangling(trees: dict[str, list[Any]]) -> None:
    trees["nodes_truenodeids"][1] = 1000


def cyclic(trees: dict[str, list[Any]]) -> None:
    at = max(range(len(trees["nodes_modes"])), key=lambda at: (trees["nodes_modes"][at] != "LEAF", at))
    trees["nodes_truenodeids"][at] = trees["nodes_nodeids"][at]


def far_feature(trees: dict[str, list[Any]]) -> None:
    at = trees["nodes_modes"].index("BRANCH_LEQ")
    trees["nodes_featureids"][at] = COLUMNS


def of_no_nodes(trees: dict[str, list[Any]]) -> None:
    trees.clear()


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (dangling, "a node leads to a node that does not exist"),
        (cyclic, "a walk may come to a node twice"),
        (far_feature, f"a node reads feature {COLUMNS} of {COLUMNS}"),
        (of_no_nodes, "it has no trees"),
    ],
)
def test_damaged_trees_are_refused(damage: Any, message: str, tmp_path: Path) -> None:
    """Otherwise the kernel would read outside of its arrays, or never end. ONNX Runtime, which loads a file first, finds some of it."""
    trees = Trees("target", 1).attributes
    damage(trees)
    path = tmp_path / "model"
    path.write_bytes(regression(rows(2), trees).SerializeToString())
    with pytest.raises(InvalidModelError):
        import_model(path, limits=ImportLimits(memory_bytes=4 << 30, timeout_sec=120))
    with pytest.raises(InvalidModelError, match=message):
        load_relax(path, Binding(), UNOPTIMISED)
