"""Converters of ONNX Runtime's fused normalisations: sums of embeddings or of a skipped layer, and a `LayerNormalization` of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tunefarm_tuning.tvm.frontend.converters.contributed.building_blocks import padded, results, scalar
from tunefarm_tuning.tvm.frontend.converters.quantized import dequantize
from tunefarm_tuning.tvm.frontend.node_context import Converter, NodeContext, UnsupportedFormError, int64s

_EPSILON = 1e-12


def convert_simplified_layer_norm(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert `SimplifiedLayerNormalization`, which ONNX calls `RMSNormalization` since opset 23."""
    if context.outputs > 1:
        raise UnsupportedFormError("its statistics as a result are not supported")
    return context.node("RMSNormalization", *inputs[:2], **attributes)


def convert_skip_norm(operator: str) -> Converter:
    """Return the converter of `SkipLayerNormalization` or of its simplified form, given the normalisation's operator."""

    def convert(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        x, skipped, scale, *others = padded(inputs, 5)
        beta, bias = others if operator == "LayerNormalization" else (None, others[0])
        added = context.node("Add", x, skipped)
        added = added if bias is None else context.node("Add", added, bias)
        normed = _normed(context, operator, (added, scale, beta), attributes)
        return results(context, normed, None, None, added)

    return convert


def convert_embed_layer_norm(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `EmbedLayerNormalization`: embeddings of words, positions and segments, added and normalised."""
    ids, segments, words, position_table, kinds, scale, beta, mask, positions = padded(inputs, 9)
    if positions is None:
        length = context.node("Slice", context.node("Shape", ids), int64s([1]), int64s([2]), int64s([0]))
        position_rows = context.node("Slice", position_table, int64s([0]), length, int64s([0]))
    else:
        position_rows = context.node("Gather", position_table, positions, axis=0)
    added = context.node("Add", context.node("Gather", words, ids, axis=0), position_rows)
    if segments is not None:
        added = context.node("Add", added, context.node("Gather", kinds, segments, axis=0))
    normed = _normed(context, "LayerNormalization", (added, scale, beta), attributes)
    if context.outputs < 2:
        return normed
    return results(context, normed, _counted(context, ids, mask), added)


def convert_q_embed_layer_norm(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert `QEmbedLayerNormalization`: tables, scale and shift in 8 bits, each with a step and a zero point."""
    ids, segments, *quantised = padded(inputs, 18)
    quantised, mask, steps, zeros = quantised[:5], quantised[5], quantised[6:11], quantised[11:]
    floats = [
        None if x is None else dequantize(context, x, step, zero)
        for x, step, zero in zip(quantised, steps, zeros, strict=True)
    ]
    return convert_embed_layer_norm(context, [ids, segments, *floats, mask], attributes)


def _normed(
    context: NodeContext, operator: str, parts: tuple[Any, Any, Any], attributes: dict[str, Any]
) -> Any:
    attributes = {"axis": -1, "epsilon": attributes.get("epsilon", _EPSILON)}
    converted = context.convert(operator, [x for x in parts if x is not None], attributes, context.opset)
    # TVM's converter of LayerNormalization makes two more results
    return context.emit(converted.fields[0] if isinstance(converted, relax.Tuple) else converted)


def _counted(context: NodeContext, ids: Any, mask: Any) -> Any:
    """Return the number of words of each sample; zeros without a mask, as ONNX Runtime has it."""
    if mask is None:
        mask = context.node("Mul", ids, scalar(0, ids))
    return context.convert("ReduceSum", [context.emit(mask), int64s([1])], {"keepdims": 0}, 13)
