"""The conditions that each ONNX operator sets on the sizes of its inputs, where these are open.

The converters of `converters.symbolic` note theirs themselves. Of all nodes, what they make has at least one element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.frontend import operator_sizes as sizes
from tunefarm_tuning.tvm.frontend.node_context import UnsupportedFormError, symbolic_shape
from tunefarm_tuning.tvm.frontend.size_conditions import SizeConditions


def note_conditions(
    conditions: SizeConditions,
    operator: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    converted: Any,
) -> None:
    """Note the conditions of a node with open sizes.

    Raises:
        UnsupportedFormError: If nobody knows them, or no size fits.
    """
    rule = RULES.get(operator)
    if rule is None:
        raise UnsupportedFormError("the sizes that it accepts are not known where they are open")
    results = _shapes_of(converted)
    node = sizes.SizedNode(
        inputs=inputs,
        shapes=[None if x is None else symbolic_shape(x) for x in inputs],
        attributes=attributes,
        outputs=attributes["tvm_custom"]["num_outputs"],
        results=results,
    )
    rule(conditions, node)
    for shape in results:
        for size in shape:
            conditions.least(size, 1)


def _shapes_of(converted: Any) -> list[sizes.Shape]:
    fields = converted.fields if isinstance(converted, relax.Tuple) else [converted]
    shapes: list[sizes.Shape] = []
    for field in fields:
        kind = getattr(field, "ty", None)
        kinds = list(kind.fields) if isinstance(kind, tvm.ir.TupleType) else [kind]
        shapes += [
            tuple(part.shape.values)
            for part in kinds
            if isinstance(part, relax.TensorType) and isinstance(part.shape, relax.ShapeExpr)
        ]
    return shapes


_OF_ONE_TENSOR = (
    "Abs", "Acos", "Acosh", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "AveragePool",
    "BitCast", "BitwiseNot", "Cast", "Ceil", "Celu", "Constant", "Cos", "Cosh", "CumProd", "CumSum",
    "Dropout", "DynamicQuantizeLinear", "Elu", "Erf", "Exp", "Flatten", "Floor", "Gelu",
    "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "HardSigmoid", "HardSwish", "Hardmax",
    "Identity", "IsInf", "IsNaN", "LRN", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "LpPool",
    "MaxPool", "MeanVarianceNormalization", "Mish", "Neg", "Not", "OneHot", "Reciprocal", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare", "Relu", "Round", "Selu", "Shape", "Shrink", "Sigmoid", "Sign",
    "Sin", "Sinh", "Size", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Transpose", "Trilu", "Unsqueeze", "com.microsoft.Gelu",
    "com.microsoft.QLinearAveragePool", "com.microsoft.QLinearGlobalAveragePool",
    "com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearSigmoid", "com.microsoft.QLinearSoftmax",
    "com.microsoft.QuickGelu",
)  # fmt: skip
_ELEMENTWISE = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "CastLike", "Clip", "Div",
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul",
    "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor", "com.microsoft.BiasGelu",
    "com.microsoft.FastGelu",
)  # fmt: skip
_NOTED_BY_CONVERTERS = ("ConstantOfShape", "Expand", "Range", "Reshape", "Resize", "Slice", "Tile",
    "Upsample",
)  # fmt: skip
_NOTED_BY_PARTS = (
    "SimplifiedLayerNormalization", "com.microsoft.Attention", "com.microsoft.CDist",
    "com.microsoft.EmbedLayerNormalization", "com.microsoft.ExpandDims", "com.microsoft.FusedMatMul",
    "com.microsoft.GatherBlockQuantized", "com.microsoft.GatherND", "com.microsoft.GridSample",
    "com.microsoft.MatMulBnb4", "com.microsoft.MatMulNBits", "com.microsoft.MultiHeadAttention",
    "com.microsoft.NhwcMaxPool", "com.microsoft.Pad", "com.microsoft.QAttention",
    "com.microsoft.QEmbedLayerNormalization", "com.microsoft.QGemm", "com.microsoft.QLinearConv",
    "com.microsoft.QLinearWhere", "com.microsoft.Range", "com.microsoft.RotaryEmbedding",
    "com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization",
    "com.microsoft.TransposeMatMul", "com.microsoft.Trilu",
)  # fmt: skip
"""Converters that make nothing but other nodes, each with conditions of its own."""

_OF_ROWS = (
    "Binarizer", "LabelEncoder", "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier",
    "SVMRegressor", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
)  # fmt: skip
"""Operators of ``ai.onnx.ml``, which take any number of rows. Their converters ask for a fixed number of columns where it matters."""

RULES: Mapping[str, sizes.Rule] = {
    **dict.fromkeys((*_OF_ONE_TENSOR, *_NOTED_BY_CONVERTERS, *_NOTED_BY_PARTS), sizes.none),
    **dict.fromkeys(_ELEMENTWISE, sizes.broadcast),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), sizes.recurrent(units=2)),
    "com.microsoft.DynamicQuantizeLSTM": sizes.recurrent(units=1),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), sizes.last_axes),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), sizes.channels),
    **dict.fromkeys(("Conv", "ConvInteger", "com.microsoft.FusedConv"), sizes.conv),
    **dict.fromkeys(("Gemm", "com.microsoft.FusedGemm"), sizes.gemm),
    **dict.fromkeys(
        (
            "MatMul",
            "MatMulInteger",
            "com.microsoft.DynamicQuantizeMatMul",
            "com.microsoft.MatMulIntegerToFloat",
        ),
        sizes.matmul,
    ),
    **dict.fromkeys(
        ("com.microsoft.QLinearAdd", "com.microsoft.QLinearMul"), sizes.quantized(sizes.broadcast)
    ),
    "QLinearConv": sizes.quantized(sizes.conv),
    "QLinearMatMul": sizes.quantized(sizes.matmul),
    "com.microsoft.QLinearConcat": sizes.quantized_concat,
    **dict.fromkeys(
        (
            "DequantizeLinear",
            "QuantizeLinear",
            "com.microsoft.DequantizeLinear",
            "com.microsoft.QuantizeLinear",
        ),
        sizes.per_axis,
    ),
    **dict.fromkeys((f"ai.onnx.ml.{name}" for name in _OF_ROWS), sizes.none),
    "ai.onnx.ml.ArrayFeatureExtractor": sizes.columns_taken,
    "ai.onnx.ml.FeatureVectorizer": sizes.side_by_side,
    "ai.onnx.ml.Imputer": sizes.by_column("imputed_value_floats"),
    "ai.onnx.ml.Scaler": sizes.by_column("offset", "scale"),
    "Concat": sizes.concat,
    "ConvTranspose": sizes.conv_transpose,
    "DepthToSpace": sizes.depth_to_space,
    "Einsum": sizes.einsum,
    "Gather": sizes.gather,
    "GatherElements": sizes.gather_elements,
    "GatherND": sizes.gather_nd,
    "GridSample": sizes.grid_sample,
    "GroupNormalization": sizes.group_norm,
    "Pad": sizes.pad,
    "ScatterElements": sizes.scatter_elements,
    "Scatter": sizes.scatter_elements,
    "ScatterND": sizes.scatter_nd,
    "SpaceToDepth": sizes.space_to_depth,
    "Split": sizes.split,
    "Squeeze": sizes.squeeze,
    "TopK": sizes.top_k,
}
"""The rules by operator. A node of an operator without one keeps a network from being compiled for all sizes."""
