"""The types of tensors that cross between compiled and other parts."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tunefarm_tuning.frontend.onnx.parts.value_types import is_fixed, open_spec


def test_a_size_below_zero_is_one_that_the_run_decides() -> None:
    """Paddle's exporter declares outputs of a loop so."""
    kind = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [-1, 501, "n"])
    spec = open_spec("y", kind)
    assert spec is not None
    assert spec.shape == (None, 501, None)
    assert not is_fixed(kind)
    assert is_fixed(onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 501]))
