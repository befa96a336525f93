"""Read the attributes of tree ensembles (``ai.onnx.ml``) into nodes, and lay these out for the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tunefarm_tuning.tvm.frontend.node_context import UnsupportedFormError
from tunefarm_tuning.tvm.kernels.layers.trees import GROUP, Forest, packed_nodes

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""As `TreeEnsemble` numbers them."""
_MEMBER = len(_MODES)
_LEAF = -1
_COPIES = 8
"""A node is copied for each way to it: the members of a set share what follows. So much longer than its nodes a tree may become."""
_OPPOSITES = {"BRANCH_GTE": "BRANCH_LT", "BRANCH_GT": "BRANCH_LEQ", "BRANCH_NEQ": "BRANCH_EQ"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nodes:
    """Nodes of trees, in any order.

    Attributes:
        modes: Indices into the branches that ONNX has; -1 for a leaf.
        yes: Where a walk goes on if the comparison holds.
        missing: Whether it holds for NaN.
        entries: Where the weights of a node begin in ``targets`` and ``weights``.
    """

    features: NDArray[np.int64]
    splits: NDArray[np.float64]
    modes: NDArray[np.int64]
    yes: NDArray[np.int64]
    no: NDArray[np.int64]
    missing: NDArray[np.bool_]
    roots: NDArray[np.int64]
    entries: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float64]

    @property
    def num_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    @property
    def num_columns(self) -> int:
        """Columns that an input needs at least."""
        features = self.features[self.modes != _LEAF]
        return int(features.max()) + 1 if len(features) else 0


def numbers_of(attributes: Mapping[str, Any], name: str) -> NDArray[Any]:
    """Return numbers that are an attribute by this name, or a tensor by this name and ``_as_tensor``."""
    value = attributes.get(f"{name}_as_tensor", attributes.get(name, ()))
    return _array(value)


def tree_ensemble_nodes(attributes: Mapping[str, Any]) -> Nodes:
    """Return the nodes of a `TreeEnsemble` of opset 5; a node that tests membership of a set becomes a chain of comparisons."""
    names = (
        "featureids",
        "truenodeids",
        "trueleafs",
        "falsenodeids",
        "falseleafs",
        "missing_value_tracks_true",
    )
    columns = {name: _ints(attributes, f"nodes_{name}") for name in names}
    columns |= {"modes": _array(attributes["nodes_modes"]).astype(np.int64)}
    columns |= {"splits": _array(attributes["nodes_splits"]).astype(np.float64)}
    if not len(columns["missing_value_tracks_true"]):
        columns["missing_value_tracks_true"] = np.zeros(len(columns["modes"]), np.int64)
    if len({len(column) for column in columns.values()}) > 1:
        raise UnsupportedFormError("its attributes have different lengths")
    columns = _chained(columns, _array(attributes.get("membership_values", ())).astype(np.float64))
    if (columns["modes"] >= len(_MODES)).any():
        raise UnsupportedFormError("a node has a mode that ONNX does not define")
    features, modes, splits = columns["featureids"], columns["modes"], columns["splits"]
    inner, leaves = len(features), len(_ints(attributes, "leaf_targetids"))
    weights = _array(attributes["leaf_weights"])

    def children(branch: str) -> NDArray[np.int64]:
        ids, are_leaves = columns[f"{branch}nodeids"], columns[f"{branch}leafs"]
        return np.concatenate([np.where(are_leaves != 0, ids + inner, ids), np.arange(leaves) + inner])

    missing = columns["missing_value_tracks_true"]
    return _checked(
        Nodes(
            features=np.concatenate([features, np.zeros(leaves, np.int64)]),
            splits=np.concatenate([splits, np.zeros(leaves)]),
            modes=np.concatenate([modes, np.full(leaves, _LEAF)]),
            yes=children("true"),
            no=children("false"),
            missing=np.concatenate([missing, np.zeros(leaves, np.int64)]) != 0,
            roots=_ints(attributes, "tree_roots"),
            entries=np.concatenate([np.zeros(inner, np.int64), np.arange(leaves + 1)]),
            targets=_ints(attributes, "leaf_targetids"),
            weights=weights.astype(np.float64),
        )
    )


def _chained(columns: Mapping[str, NDArray[Any]], members: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return nodes without tests of membership: each is a node that compares with the first member, and one more for each other.

    Args:
        columns: The nodes' attributes.
        members: Of the sets, in the order of the nodes that test them; NaN ends a set.
    """
    rows = {name: column.tolist() for name, column in columns.items()}
    sets: list[list[float]] = [[]]
    for member in members.tolist():
        if np.isnan(member):
            sets.append([])
        else:
            sets[-1].append(member)
    testing = np.flatnonzero(columns["modes"] == _MEMBER).tolist()
    if len(testing) > len(sets):
        raise UnsupportedFormError(f"{len(testing)} nodes test membership, of {len(sets)} sets")
    for at, its_members in zip(testing, sets, strict=False):
        otherwise = rows["falsenodeids"][at], rows["falseleafs"][at]
        rows["modes"][at] = _MODES.index("BRANCH_EQ")
        rows["splits"][at] = its_members[0] if its_members else np.nan
        last = at
        for member in its_members[1:]:
            for name, column in rows.items():
                column.append(member if name == "splits" else column[at])
            rows["falsenodeids"][last], rows["falseleafs"][last] = len(rows["modes"]) - 1, 0
            last = len(rows["modes"]) - 1
        rows["falsenodeids"][last], rows["falseleafs"][last] = otherwise
    return {name: np.array(row, columns[name].dtype) for name, row in rows.items()}


def classic_nodes(attributes: Mapping[str, Any], kind: str) -> Nodes:
    """Return the nodes of a `TreeEnsembleRegressor` (kind ``"target"``) or `TreeEnsembleClassifier` (``"class"``)."""
    trees, ids = _ints(attributes, "nodes_treeids"), _ints(attributes, "nodes_nodeids")
    names = [
        mode.decode() if isinstance(mode, bytes) else str(mode) for mode in attributes.get("nodes_modes", ())
    ]
    unknown = sorted({*names} - {*_MODES, "LEAF"})
    if unknown:
        raise UnsupportedFormError(f"nodes of mode {unknown[0]} are not supported")
    positions = {key: at for at, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    modes = np.array([_LEAF if name == "LEAF" else _MODES.index(name) for name in names], np.int64)

    def children(branch: str) -> NDArray[np.int64]:
        next_ids = _ints(attributes, f"nodes_{branch}nodeids")
        pairs = zip(trees.tolist(), next_ids.tolist(), modes.tolist(), strict=True)
        return np.array(
            [
                at if mode == _LEAF else positions.get((tree, to), -1)
                for at, (tree, to, mode) in enumerate(pairs)
            ],
            np.int64,
        )

    prefix = f"{kind}_"
    of_node = [
        positions.get(key, -1)
        for key in zip(
            _ints(attributes, f"{prefix}treeids").tolist(),
            _ints(attributes, f"{prefix}nodeids").tolist(),
            strict=True,
        )
    ]
    if min(of_node, default=0) < 0:
        raise UnsupportedFormError("a weight is of a node that is not there")
    order = np.argsort(of_node, kind="stable")
    weights, splits = numbers_of(attributes, f"{prefix}weights"), numbers_of(attributes, "nodes_values")
    _, first = np.unique(trees, return_index=True)
    yes, no = children("true"), children("false")
    return _checked(
        Nodes(
            features=_ints(attributes, "nodes_featureids"),
            splits=splits.astype(np.float64),
            modes=modes,
            yes=yes,
            no=no,
            missing=_ints(attributes, "nodes_missing_value_tracks_true", len(trees)) != 0,
            roots=_roots(trees[first], first, trees, yes, no, modes),
            entries=np.searchsorted(np.array(of_node, np.int64)[order], np.arange(len(trees) + 1)),
            targets=_ints(attributes, f"{prefix}ids")[order],
            weights=weights.astype(np.float64)[order],
        )
    )


def forest_of(nodes: Nodes, dtype: str) -> Forest:
    """Lay nodes out for the kernel: the two children of a node side by side, and trees in the file's order, in which ONNX Runtime adds."""
    trees = [_tree(nodes, int(root)) for root in nodes.roots]
    order: list[int] = []
    children: list[int] = []
    roots: list[int] = []
    for old_ids, _, first_children in trees:
        roots.append(len(order))
        children.extend(child + len(order) for child in first_children)
        order.extend(old_ids)
    old = np.array(order, np.int64)
    is_leaf = nodes.modes[old] == _LEAF
    low, high, missing = _bounds(nodes, old, np.dtype(dtype))
    counts = np.where(is_leaf, nodes.entries[old + 1] - nodes.entries[old], 0)
    entries = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(entries[-1]) - np.repeat(entries[:-1], counts)
    weights_at = np.repeat(nodes.entries[old], counts) + within
    return Forest(
        nodes=packed_nodes(np.array(children), np.where(is_leaf, 0, nodes.features[old]), low, high),
        has_low=bool((low > -np.inf).any()),
        missing=missing.astype(np.int8),
        entries=entries.astype(np.int32),
        targets=np.append(nodes.targets[weights_at], 0).astype(np.int32),  # an array of no elements is none
        weights=np.append(nodes.weights[weights_at], 0).astype(dtype),
        groups=np.array([*range(0, len(trees), GROUP), len(trees)], np.int32),
        roots=np.array(roots, np.int32),
        num_steps=sum(depth for _, depth, _ in trees),
    )


def _tree(nodes: Nodes, root: int) -> tuple[list[int], int, list[int]]:
    """Return a tree's nodes with children side by side, its depth, and each node's first child (a leaf's is itself)."""
    order, children, depths = [root], [0], [0]
    for at in range(_COPIES * len(nodes.modes) + 1):
        if at >= len(order):
            return order, max(depths), children
        node = order[at]
        children[at] = at
        if nodes.modes[node] == _LEAF:
            continue
        children[at] = len(order)
        branches = (nodes.yes[node], nodes.no[node])
        order.extend(int(branch) for branch in (branches[::-1] if _is_turned(nodes, node) else branches))
        children.extend((0, 0))
        depths.extend((depths[at] + 1,) * 2)
    raise UnsupportedFormError("its nodes are not trees: a walk may come to a node twice")


def _is_turned(nodes: Nodes, node: int) -> bool:
    return _MODES[nodes.modes[node]] in _OPPOSITES


def _bounds(
    nodes: Nodes, old: NDArray[np.int64], dtype: Any
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Return the least and largest features with which a walk goes to the first child, and whether it does with NaN."""
    names = np.array([*(_OPPOSITES.get(mode, mode) for mode in _MODES), "LEAF"])[nodes.modes[old]]
    splits = nodes.splits[old].astype(dtype)
    below = np.where(splits == -np.inf, dtype.type(np.nan), np.nextafter(splits, dtype.type(-np.inf)))
    turned = np.isin(nodes.modes[old], [_MODES.index(mode) for mode in _OPPOSITES])
    high = np.where(names == "BRANCH_LT", below, splits)
    is_never = turned & (names != "BRANCH_EQ") & np.isnan(splits)  # nothing is greater than NaN
    high = np.where(is_never, dtype.type(np.inf), high)
    low = np.where(names == "BRANCH_EQ", splits, dtype.type(-np.inf))
    is_leaf = names == "LEAF"
    missing = np.where(is_leaf, True, nodes.missing[old] != turned)
    missing[nodes.modes[old] == _MODES.index("BRANCH_NEQ")] = False  # NaN is unequal to everything
    return low, np.where(is_leaf, dtype.type(np.inf), high), missing


def _roots(
    tree_ids: NDArray[np.int64],
    first: NDArray[np.int64],
    trees: NDArray[np.int64],
    yes: NDArray[np.int64],
    no: NDArray[np.int64],
    modes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return each tree's node that is no other node's child; ONNX lists it first, but does not have to."""
    is_child = np.zeros(len(trees), bool)
    inner = modes != _LEAF
    for branch in (yes, no):
        targets = branch[inner]
        is_child[targets[targets >= 0]] = True
    roots = []
    for tree, start in zip(tree_ids.tolist(), first.tolist(), strict=True):
        if not is_child[start]:
            roots.append(start)
            continue
        candidates = np.flatnonzero((trees == tree) & ~is_child)
        if len(candidates) != 1:
            raise UnsupportedFormError(f"tree {tree} has {len(candidates)} roots")
        roots.append(int(candidates[0]))
    return np.array(roots, np.int64)


def _checked(nodes: Nodes) -> Nodes:
    """Return nodes whose arrays are equally long and whose children are among them."""
    count = len(nodes.modes)
    lengths = {len(array) for array in (nodes.features, nodes.splits, nodes.yes, nodes.no, nodes.missing)}
    if lengths != {count} or len(nodes.entries) != count + 1 or len(nodes.targets) != len(nodes.weights):
        raise UnsupportedFormError("its attributes have different lengths")
    if not nodes.num_trees:
        raise UnsupportedFormError("it has no trees")
    for array in (nodes.yes, nodes.no, nodes.roots):
        if not 0 <= int(array.min()) <= int(array.max()) < count:
            raise UnsupportedFormError("a node leads to a node that does not exist")
    if (nodes.features < 0).any():
        raise UnsupportedFormError("a node reads a feature of a negative number")
    return nodes


def _ints(attributes: Mapping[str, Any], name: str, count: int = 0) -> NDArray[np.int64]:
    """Return an attribute of integers; zeros if it is left out."""
    value = attributes.get(name, ())
    return np.array(value, np.int64) if len(value) else np.zeros(count, np.int64)


def _array(value: Any) -> NDArray[Any]:
    if isinstance(value, tuple | list):
        return np.array(value, np.float32)
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    return np.asarray(value).reshape(-1)
