"""StableHLO files: their first bytes, the names of inputs, and small inner programs."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_convert import FileFormat, file_format
from tunefarm_convert.onnx_writer import OnnxWriter
from tunefarm_convert.signatures import is_portable, stablehlo_module
from tunefarm_convert.stablehlo.convert import edge_names
from tunefarm_convert.stablehlo.operators.regions import operator_of, outcome
from tunefarm_convert.stablehlo.program import Block, Operation, TensorType, UnsupportedFormError
from tunefarm_tuning.core.errors import InvalidModelError

PORTABLE = b"ML\xefR\x0dStableHLO_v1.0.0\x00rest"


def exported(module: bytes) -> bytes:
    """Return a flatbuffer whose fourteenth field is a module, as `jax.export` writes."""
    vtable = struct.pack("<HH", 32, 8) + bytes(26) + struct.pack("<H", 4)
    root = struct.pack("<i", 32) + struct.pack("<I", 4)
    return struct.pack("<I", 36) + vtable + root + struct.pack("<I", len(module)) + module


@pytest.mark.parametrize(
    "head",
    [
        b"module @jit_f {",
        b'// by hand\n\n#loc1 = loc("x")\nmodule {',
        b"!a = tensor<2xf32>\n",
        b"func.func @main()",
        PORTABLE,
    ],
)
def test_mlir_is_known_by_its_first_bytes(head: bytes) -> None:
    assert file_format(head, ".bin") is FileFormat.STABLEHLO
    assert stablehlo_module(head) == head


def test_a_file_of_jax_is_known_and_holds_a_module() -> None:
    assert file_format(exported(PORTABLE)) is FileFormat.STABLEHLO
    assert stablehlo_module(exported(PORTABLE)) == PORTABLE
    assert is_portable(PORTABLE)
    assert not is_portable(b"ML\xefR\x01MLIR21\x00")
    assert file_format(exported(PORTABLE)[:-1]) is None
    assert file_format(exported(b"something else")) is None


@given(st.binary(max_size=200).filter(lambda data: file_format(data) is not FileFormat.STABLEHLO))
def test_any_other_bytes_are_a_clear_error(data: bytes) -> None:
    with pytest.raises(InvalidModelError) as caught:
        stablehlo_module(data)
    assert caught.value.code == "not-stablehlo"


def test_names_are_those_of_the_program_where_they_tell_values_apart() -> None:
    names = ["x", "params['dense'].kernel", "a b", "args[0]", "args[1]", "result", "same", "same", "'; drop"]
    assert edge_names(names, len(names), "input", OnnxWriter("stablehlo")) == [
        "x",
        "params.dense.kernel",
        "input_2",
        "args.0",
        "args.1",
        "input_5",
        "input_6",
        "input_7",
        "input_8",
    ]
    assert edge_names(["x"], 2, "output", OnnxWriter("stablehlo")) == ["output_0", "output_1"]


FLOAT, BOOLEAN = TensorType((), "float32"), TensorType((), "bool")


def block(*operations: Operation, returned: int) -> Block:
    return Block(arguments=((0, FLOAT), (1, FLOAT)), operations=operations, returned=(returned,))


def operation(kind: str, *operands: int, result: int = 2, **attributes: object) -> Operation:
    return Operation(
        number=0,
        kind=f"stablehlo.{kind}",
        where="",
        operands=operands,
        results=((result, FLOAT),),
        attributes=attributes,
        blocks=(),
    )


def test_an_inner_program_is_one_operator_of_both_or_refused() -> None:
    assert operator_of(block(operation("add", 1, 0), returned=2)) == "add"
    assert operator_of(block(returned=1)) == "assign"
    for other in (
        block(operation("add", 0, 0), returned=2),
        block(operation("add", 0, 1), returned=0),
        block(operation("subtract", 0, 1), returned=2),
        block(returned=0),
    ):
        with pytest.raises(UnsupportedFormError):
            operator_of(other)


def test_an_inner_program_that_only_compares_is_run() -> None:
    less = operation("compare", 0, 1, comparison_direction="LT", compare_type="TOTALORDER")
    chosen = block(less, operation("select", 2, 0, 1, result=3), returned=3)
    assert outcome(chosen, [np.float64(1), np.float64(2)], {}) == [1]
    assert outcome(chosen, [np.float64(0.0), np.float64(-0.0)], {}) == [0]
    assert outcome(chosen, [np.float64("nan"), np.float64(5)], {}) == [5]
    with pytest.raises(UnsupportedFormError, match="number of its own"):
        outcome(block(operation("constant", value=np.float32(3)), returned=2), [1.0, 2.0], {}, zero=True)
    with pytest.raises(UnsupportedFormError, match="compare and choose"):
        outcome(block(operation("add", 0, 1), returned=2), [1.0, 2.0], {})
