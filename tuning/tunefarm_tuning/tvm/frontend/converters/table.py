"""Our converters, by ONNX operator: for operators whose TVM converter is wrong, makes slow kernels, or does not exist.

To support another operator, write a converter in a module of this package, add a row here, and add the operator to the list of
supported ones in `tunefarm_tuning.frontend.onnx.operators`, which a test compares with this. `docs/known-limits.md` says what is
wrong with TVM's converters.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunefarm_tuning.tvm.frontend.converters import (
    arithmetic,
    elementwise,
    feature_scaling,
    fused,
    images,
    ngrams,
    normalization,
    quantized,
    recurrent,
    reductions,
    resize,
    signals,
    tensors,
    windows,
)
from tunefarm_tuning.tvm.frontend.node_context import Converter

MICROSOFT = "com.microsoft."
"""The prefix of ONNX Runtime's own operators; those of ONNX's default domain have none."""
ML = "ai.onnx.ml."
"""The prefix of ONNX's operators for other models than networks."""

CONVERTERS: Mapping[str, Converter] = {
    "AveragePool": images.convert_pool("AveragePool"),
    "BatchNormalization": normalization.convert_batch_norm,
    "BitCast": elementwise.convert_bit_cast,
    "BitShift": elementwise.convert_bit_shift,
    "Clip": arithmetic.convert_clip,
    "Col2Im": windows.convert_col2im,
    "Concat": tensors.convert_concat,
    "Constant": tensors.convert_constant,
    "ConvInteger": quantized.convert_conv_integer,
    "ConvTranspose": images.convert_conv_transpose,
    "CumProd": reductions.convert_cum_prod,
    "DFT": signals.convert_dft,
    "DeformConv": windows.convert_deform_conv,
    "DequantizeLinear": quantized.convert_dequantize,
    "Det": reductions.convert_det,
    "Dropout": normalization.convert_dropout,
    "DynamicQuantizeLinear": quantized.convert_dynamic_quantize_linear,
    "Elu": arithmetic.convert_elu,
    "EyeLike": tensors.convert_eye_like,
    "GRU": recurrent.convert_recurrent("GRU"),
    "Gather": tensors.convert_gather,
    "HardSigmoid": arithmetic.convert_hard_sigmoid,
    "HardSwish": arithmetic.convert_hard_swish,
    "IsInf": arithmetic.convert_is_inf,
    "LSTM": recurrent.convert_recurrent("LSTM"),
    "LayerNormalization": normalization.convert_layer_norm,
    "LeakyRelu": arithmetic.convert_leaky_relu,
    "LpNormalization": normalization.convert_lp_norm,
    "LpPool": images.convert_pool("LpPool"),
    "Max": arithmetic.convert_max,
    "MaxPool": images.convert_max_pool,
    "Min": arithmetic.convert_min,
    "Mish": elementwise.convert_mish,
    "Mod": elementwise.convert_mod,
    "NonMaxSuppression": images.convert_non_max_suppression,
    "OneHot": tensors.convert_one_hot,
    "Pad": tensors.convert_pad,
    "Pow": arithmetic.convert_pow,
    "QLinearConv": quantized.convert_q_conv,
    "QLinearMatMul": quantized.convert_q_matmul,
    "QuantizeLinear": quantized.convert_quantize,
    "RMSNormalization": normalization.convert_rms_norm,
    "RNN": recurrent.convert_recurrent("RNN"),
    "ReduceLogSumExp": reductions.convert_log_sum_exp,
    "ReduceMax": reductions.convert_extremum("ReduceMax"),
    "ReduceMin": reductions.convert_extremum("ReduceMin"),
    "Resize": resize.convert_resize,
    "ReverseSequence": windows.convert_reverse_sequence,
    "RoiAlign": images.convert_roi_align,
    "STFT": signals.convert_stft,
    "Selu": arithmetic.convert_selu,
    "Shape": tensors.convert_shape,
    "Size": tensors.convert_size,
    "Slice": tensors.convert_slice,
    "Softplus": elementwise.convert_softplus,
    "SpaceToDepth": images.convert_space_to_depth,
    "Squeeze": tensors.convert_squeeze,
    "TensorScatter": elementwise.convert_tensor_scatter,
    "TfIdfVectorizer": ngrams.convert_tf_idf,
    "ThresholdedRelu": arithmetic.convert_thresholded_relu,
    "TopK": tensors.convert_top_k,
    "Upsample": resize.convert_upsample,
    f"{ML}ArrayFeatureExtractor": feature_scaling.convert_array_feature_extractor,
    f"{ML}Binarizer": feature_scaling.convert_binarizer,
    f"{ML}LinearRegressor": feature_scaling.convert_linear_regressor,
    f"{ML}Scaler": feature_scaling.convert_scaler,
    f"{MICROSOFT}DynamicQuantizeLSTM": recurrent.convert_dynamic_quantize_lstm,
    f"{MICROSOFT}DynamicQuantizeMatMul": fused.convert_dynamic_quantize_matmul,
    f"{MICROSOFT}FusedConv": fused.convert_fused_conv,
    f"{MICROSOFT}FusedGemm": fused.convert_fused_gemm,
    f"{MICROSOFT}FusedMatMul": fused.convert_fused_matmul,
    f"{MICROSOFT}MatMulIntegerToFloat": fused.convert_matmul_integer_to_float,
    f"{MICROSOFT}QGemm": quantized.convert_q_gemm,
    f"{MICROSOFT}QLinearAdd": quantized.convert_q_binary("Add"),
    f"{MICROSOFT}QLinearAveragePool": quantized.convert_q_unary("AveragePool"),
    f"{MICROSOFT}QLinearConcat": quantized.convert_q_concat,
    f"{MICROSOFT}QLinearGlobalAveragePool": quantized.convert_q_unary("GlobalAveragePool"),
    f"{MICROSOFT}QLinearLeakyRelu": quantized.convert_q_unary("LeakyRelu"),
    f"{MICROSOFT}QLinearMul": quantized.convert_q_binary("Mul"),
    f"{MICROSOFT}QLinearSigmoid": quantized.convert_q_unary("Sigmoid"),
    f"{MICROSOFT}QLinearSoftmax": quantized.convert_q_unary("Softmax"),
    f"{MICROSOFT}QuickGelu": fused.convert_quick_gelu,
}
"""A converter returns None for a form of the operator that TVM's converter handles."""
