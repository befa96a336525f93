"""The operators that can be imported, by TVM's converters or by ours, so that others are refused without starting TVM.

A test compares the table with the importer's; after a change of TVM's version, copy the names that it prints.
"""

from __future__ import annotations

import onnx

from tunefarm_tuning.frontend.onnx.graph_reading import ONNX_DOMAINS

MICROSOFT = "com.microsoft"
"""ONNX Runtime's domain."""
_IN_ONNXS_DOMAIN = {"LayerNormalization": 17, "SimplifiedLayerNormalization": None}
"""Operators that ONNX Runtime has put into ONNX's domain, and the opset since which ONNX has them, too."""

STANDARD = frozenset({
    "Abs", "Acos", "Acosh", "Add", "AffineGrid", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh",
    "Attention", "AveragePool", "BatchNormalization", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "BlackmanWindow", "Cast", "CastLike", "CausalConvWithState", "Ceil", "Celu",
    "CenterCropPad", "Clip", "Col2Im", "Compress", "Concat", "ConcatFromSequence", "Constant",
    "ConstantOfShape", "Conv", "ConvInteger", "ConvTranspose", "Cos", "Cosh", "CumProd", "CumSum", "DFT",
    "DeformConv", "DepthToSpace", "DequantizeLinear", "Det", "Div", "Dropout", "DynamicQuantizeLinear",
    "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "GRU", "Gather",
    "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",
    "Greater", "GreaterOrEqual", "GridSample", "GroupNormalization", "HammingWindow", "HannWindow",
    "HardSigmoid", "HardSwish", "Hardmax", "Identity", "If", "InstanceNormalization", "IsInf", "IsNaN", "LRN",
    "LSTM", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "LinearAttention", "Log", "LogSoftmax",
    "LpNormalization", "LpPool", "MatMul", "MatMulInteger", "Max", "MaxPool", "MaxRoiPool", "MaxUnpool",
    "Mean", "MeanVarianceNormalization", "MelWeightMatrix", "Min", "Mish", "Mod", "Mul", "Neg",
    "NegativeLogLikelihoodLoss", "NonMaxSuppression", "NonZero", "Not", "OneHot", "Optional",
    "OptionalGetElement", "OptionalHasElement", "Or", "PRelu", "Pad", "Pow", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear", "RMSNormalization", "RNN", "Range", "Reciprocal", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Relu", "Reshape", "Resize", "ReverseSequence", "RoiAlign", "RotaryEmbedding", "Round",
    "STFT", "Scatter", "ScatterElements", "ScatterND", "Selu", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "Shape", "Shrink", "Sigmoid",
    "Sign", "SimplifiedLayerNormalization", "Sin", "Sinh", "Size", "Slice", "Softmax", "SoftmaxCrossEntropyLoss", "Softplus", "Softsign",
    "SpaceToDepth", "Split", "SplitToSequence", "Sqrt", "Squeeze", "Sub", "Sum", "SwiGLU", "Swish", "Tan",
    "Tanh", "TensorScatter", "TfIdfVectorizer", "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu",
    "Unique", "Unsqueeze", "Upsample", "Where", "Xor",
})  # fmt: skip
"""Operators of the default domain. The importer handles ``If`` beside its table; ``SimplifiedLayerNormalization`` is ONNX Runtime's."""

CONTRIBUTED = frozenset({
    "Attention", "BiasGelu", "CDist", "DequantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul",
    "EmbedLayerNormalization", "ExpandDims", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul",
    "GatherBlockQuantized", "GatherND", "Gelu", "GridSample", "GroupQueryAttention", "MatMulBnb4", "MatMulInteger16",
    "MatMulIntegerToFloat", "MatMulNBits", "MultiHeadAttention", "NhwcMaxPool", "Pad", "QAttention",
    "QEmbedLayerNormalization", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool",
    "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QuantizeLinear",
    "QuickGelu", "Range", "RotaryEmbedding", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "TransposeMatMul", "Trilu", "UnfoldTensor",
})  # fmt: skip
"""Operators of ONNX Runtime's domain, com.microsoft: those that TVM, which ignores domains, means by these names, and ours."""

MACHINE_LEARNING = frozenset({
    "ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier", "LinearRegressor",
    "Normalizer", "OneHotEncoder", "SVMClassifier", "SVMRegressor", "Scaler", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
})  # fmt: skip
"""Operators of the domain ai.onnx.ml."""


def is_supported(domain: str, operator: str) -> bool:
    """Return whether the importer can convert an operator."""
    if domain in ONNX_DOMAINS:
        return operator in STANDARD
    if domain == "ai.onnx.ml":
        return operator in MACHINE_LEARNING
    return domain == MICROSOFT and operator in CONTRIBUTED


def is_of_onnx_runtime_alone(node: onnx.NodeProto, opset: int) -> bool:
    """Return whether ONNX does not know a node of its own domain in an opset, but ONNX Runtime does."""
    if node.domain not in ONNX_DOMAINS or node.op_type not in _IN_ONNXS_DOMAIN:
        return False
    since = _IN_ONNXS_DOMAIN[node.op_type]
    return since is None or opset < since
