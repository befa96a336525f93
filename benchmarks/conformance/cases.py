"""The test cases that the package ``onnx`` ships: a small model each, with inputs and expected outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_EXPANDED = "_expanded"
THROUGH = "through"
"""The input that is added where a network would have none."""

PARAMETERS: Mapping[str, Sequence[int]] = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2),
    "ConstantOfShape": (0,), "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Dropout": (1, 2),
    "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,), "If": (0,), "Loop": (0, 1), "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4), "NonMaxSuppression": (2, 3, 4), "OneHot": (1, 2), "Pad": (1, 2, 3),
    "Range": (0, 1, 2), "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,),
    "ReduceMax": (1,), "ReduceMean": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceSum": (1,),
    "ReduceSumSquare": (1,), "Reshape": (1,), "Resize": (1, 2, 3), "STFT": (1, 3), "Slice": (1, 2, 3, 4),
    "Split": (1,), "SplitToSequence": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Trilu": (1,),
    "Unsqueeze": (1,), "Upsample": (1,),
}  # fmt: skip
"""Inputs by position that say what a node does (axes, shapes, counts), where the others are its data. Exporters store them as
constants; the test cases feed them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test case.

    Attributes:
        operator: What it tests.
        feeds: Values of the inputs, by name.
        expected: Values of the outputs, in order.
    """

    name: str
    operator: str
    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    expected: Sequence[Any]
    rtol: float
    atol: float

    @property
    def of_tensors(self) -> bool:
        """Whether all inputs and outputs are dense tensors of numbers or booleans that numpy has itself."""
        return all(
            isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiub"
            for value in (*self.feeds.values(), *self.expected)
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of the inputs that `PARAMETERS` lists, by name; an expanded model has those of the operator."""
        node = self.model.graph.node[0]
        if _EXPANDED in self.name:
            node = all_cases()[self.name.split(_EXPANDED)[0]].model.graph.node[0]
        names = [node.input[i] for i in PARAMETERS.get(self.operator, ()) if i < len(node.input)]
        return {name: self.feeds[name] for name in names if name in self.feeds}

    def stored(self, names: Iterable[str]) -> onnx.ModelProto:
        """Return the model with some inputs stored as constants.

        A network needs an input. If none is left, one is added that goes straight to an output.
        """
        model = onnx.ModelProto.FromString(self.model.SerializeToString())
        graph = model.graph
        kept = [value for value in graph.input if value.name not in names]
        del graph.input[:]
        graph.input.extend(kept)
        graph.initializer.extend(
            numpy_helper.from_array(np.asarray(self.feeds[name]), name) for name in names
        )
        if not kept:
            for values, name in ((graph.input, THROUGH), (graph.output, f"{THROUGH}_output")):
                values.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]))
            graph.node.append(helper.make_node("Identity", [THROUGH], [f"{THROUGH}_output"]))
        return model


@cache
def all_cases() -> Mapping[str, Case]:
    """Return the cases by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = {case.name: case for case in collect_testcases(None)}
    operators = {
        name: case.model.graph.node[0].op_type for name, case in collected.items() if _EXPANDED not in name
    }
    cases = {}
    for name, case in collected.items():
        ((inputs, outputs),) = case.data_sets
        cases[name] = Case(
            name=name,
            operator=operators[name.split(_EXPANDED)[0]],
            model=case.model,
            feeds={value.name: feed for value, feed in zip(case.model.graph.input, inputs, strict=True)},
            expected=outputs,
            rtol=case.rtol,
            atol=case.atol,
        )
    return cases
