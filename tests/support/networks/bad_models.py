"""Broken, unsupported and hostile model files, each with the error code that refuses it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_models import FLOAT, INT64, GraphBuilder, mlp

TERMINAL_ESCAPE = "\x1b[31mred\x1b[0m\n<script>"


def truncated() -> bytes:
    data = mlp().SerializeToString()
    return data[: len(data) // 2]


def damaged_inside() -> bytes:
    """The outermost field is intact; its content is damaged."""
    inner = b"\x0a\xff\xff\xff\x7f" + b"x" * 20
    return b"\x08\x08" + b"\x3a" + bytes([len(inner)]) + inner


def no_graph() -> bytes:
    return onnx.ModelProto(ir_version=8).SerializeToString()


def no_inputs() -> bytes:
    g = GraphBuilder()
    g.node("Relu", g.weight(3, 4), out="y")
    g.output("y", [3, 4])
    return g.model().SerializeToString()


def unknown_operator(name: str = "twist", operator: str = "Twist", domain: str = "") -> bytes:
    g = GraphBuilder(prefix=name)
    g.node(operator, g.input("x", [1, 4]), out="y", domain=domain)
    g.output("y", [1, 4])
    model = g.model()
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model.SerializeToString()


def unsupported_in_branch() -> bytes:
    """Random numbers that only one branch of an `If` holds."""
    g = GraphBuilder()
    x = g.input("x", [3, 1, 4])
    flag = g.input("flag", [], TensorProto.BOOL)
    branches = {}
    for branch in ("then_branch", "else_branch"):
        inner = GraphBuilder(prefix=branch)
        if branch == "then_branch":
            inner.node("RandomNormalLike", x, out=f"{branch}_y")
        else:
            inner.node("Identity", x, out=f"{branch}_y")
        inner.output(f"{branch}_y")
        branches[branch] = inner.graph(branch)
    g.node("If", flag, out="y", **branches)
    g.output("y")
    return g.model().SerializeToString()


def local_function() -> bytes:
    g = GraphBuilder()
    g.node("Twice", g.input("x", [1, 4]), out="y", domain="mine")
    g.output("y", [1, 4])
    model = g.model()
    model.opset_import.append(helper.make_opsetid("mine", 1))
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    model.functions.append(
        helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    )
    return model.SerializeToString()


def recursive_function() -> bytes:
    model = onnx.ModelProto.FromString(local_function())
    (function,) = model.functions
    function.node[0].CopyFrom(helper.make_node("Twice", ["a"], ["b"], domain="mine"))
    function.opset_import.append(helper.make_opsetid("mine", 1))
    return model.SerializeToString()


def external(tensor: onnx.TensorProto, location: str = "/etc/passwd") -> onnx.TensorProto:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def external_weight() -> bytes:
    model = mlp()
    external(model.graph.initializer[0])
    return model.SerializeToString()


def external_attribute() -> bytes:
    """In a Constant's attribute, inside a branch."""
    g = GraphBuilder()
    x = g.input("x", [1, 4])
    flag = g.input("flag", [], TensorProto.BOOL)
    branches = {}
    for branch in ("then_branch", "else_branch"):
        inner = GraphBuilder(prefix=branch)
        tensor = external(numpy_helper.from_array(np.ones((1, 4), np.float32)), "../../secret")
        inner.node("Add", x, inner.node("Constant", value=tensor), out=f"{branch}_y")
        inner.output(f"{branch}_y", [1, 4])
        branches[branch] = inner.graph(branch)
    g.node("If", flag, out="y", **branches)
    g.output("y", [1, 4])
    return g.model().SerializeToString()


def external_in_function() -> bytes:
    model = onnx.ModelProto.FromString(local_function())
    tensor = external(numpy_helper.from_array(np.ones(4, np.float32)))
    model.functions[0].node.append(helper.make_node("Constant", [], ["c"], value=tensor))
    return model.SerializeToString()


def input_of(shape: list[int | str | None] | None, dtype: int = FLOAT) -> bytes:
    g = GraphBuilder()
    g.node("Identity", g.input("x", shape, dtype), out="y")
    g.output("y", shape, dtype)
    return g.model().SerializeToString()


def sequence_input() -> bytes:
    g = GraphBuilder()
    g.node("SequenceLength", "s", out="n")
    g.output("n", [], INT64)
    model = g.model()
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    return model.SerializeToString()


def bfloat16_weight() -> bytes:
    model = mlp()
    first = model.graph.initializer[0]
    count = int(np.prod(first.dims))
    first.CopyFrom(helper.make_tensor(first.name, TensorProto.BFLOAT16, list(first.dims), [1.0] * count))
    return model.SerializeToString()


def bfloat16_output() -> bytes:
    g = GraphBuilder()
    g.output(g.node("Cast", g.input("x", [1, 4]), to=TensorProto.BFLOAT16), [1, 4], TensorProto.BFLOAT16)
    return g.model().SerializeToString()


def cast_to_float8() -> bytes:
    g = GraphBuilder()
    y = g.node("Cast", g.input("x", [1, 4]), to=TensorProto.FLOAT8E4M3FN)
    g.node("Cast", y, to=FLOAT, out="y")
    g.output("y", [1, 4])
    return g.model(opset=19).SerializeToString()


def undefined_tensor() -> bytes:
    g = GraphBuilder()
    g.node("Add", g.input("x", [1, 4]), "nowhere", out="y")
    g.output("y", [1, 4])
    return g.model().SerializeToString()


def wrong_types() -> bytes:
    """Passes the checker, which infers nothing; ONNX Runtime refuses it."""
    g = GraphBuilder()
    g.node("Add", g.input("x", [1, 4]), g.ints(1, 2, 3, 4), out="y")
    g.output("y", [1, 4])
    return g.model().SerializeToString()


def future_opset() -> bytes:
    model = mlp()
    model.opset_import[0].version = 9999
    return model.SerializeToString()


def no_opset() -> bytes:
    model = mlp()
    del model.opset_import[:]
    return model.SerializeToString()


def duplicate_output() -> bytes:
    model = mlp()
    model.graph.node[1].output[0] = model.graph.node[0].output[0]
    return model.SerializeToString()


def same_output_twice() -> bytes:
    model = mlp()
    model.graph.output.append(model.graph.output[0])
    return model.SerializeToString()


def zero_stride() -> bytes:
    g = GraphBuilder()
    g.node("MaxPool", g.input("x", [1, 1, 8, 8]), kernel_shape=[2, 2], strides=[0, 0], out="y")
    g.output("y", [1, 1, 4, 4])
    return g.model().SerializeToString()


def zero_groups() -> bytes:
    g = GraphBuilder()
    g.node("Conv", g.input("x", [1, 1, 8, 8]), g.weight(1, 1, 3, 3), group=0, out="y")
    g.output("y", [1, 1, 6, 6])
    return g.model().SerializeToString()


def wide_fields() -> bytes:
    """Thousands of tiny outermost fields, which would cost a parser much and mean nothing."""
    return b"\x08\x08" * 200_000


def not_utf8() -> bytes:
    g = GraphBuilder()
    g.node("Identity", g.input("ABCDEFG", [1]), out="y")
    g.output("y", [1])
    return g.model().SerializeToString().replace(b"ABCDEFG", b"AB\xff\xfeEFG")


def data_dependent() -> bytes:
    g = GraphBuilder()
    g.node("NonZero", g.input("x", [2, 4]), out="where")
    g.output("where", [2, None], INT64)
    return g.model().SerializeToString()


def zero_size_output() -> bytes:
    g = GraphBuilder()
    x = g.input("x", [2, 4])
    g.node("Slice", x, g.ints(0), g.ints(0), g.ints(1), out="y")
    g.output("y", [2, 0])
    return g.model().SerializeToString()


def memory_bomb(operator: str = "ConstantOfShape") -> bytes:
    """A few hundred bytes that ask for 40 GB while constants are folded."""
    g = GraphBuilder()
    x = g.input("x", [1])
    if operator == "ConstantOfShape":
        big = g.node("ConstantOfShape", g.ints(100_000, 100_000))
    elif operator == "Expand":
        big = g.node("Expand", g.weight(1, 1), g.ints(100_000, 100_000))
    else:
        big = g.node("Tile", g.weight(1, 1), g.ints(100_000, 100_000))
    total = g.node("ReduceSum", big, keepdims=0)
    g.node("Add", x, total, out="y")
    g.output("y", [1])
    return g.model().SerializeToString()


def folded_division_by_zero() -> bytes:
    """The compiler divides by zero while it folds constants: SIGFPE."""
    g = GraphBuilder()
    x = g.input("x", [3], INT64)
    # Not plainly zero, or the libraries would see it coming.
    zero = g.node("Cast", g.node("Relu", g.constant(np.zeros(3, np.float32))), to=INT64)
    g.node("Add", x, g.node("Div", g.ints(1, 2, 3), zero), out="y")
    g.output("y", [3], INT64)
    return g.model().SerializeToString()


def huge_input() -> bytes:
    return input_of([1_000_000, 1_000_000])


def huge_inside() -> bytes:
    g = GraphBuilder()
    x = g.input("x", [200_000, 1])
    y = g.node("Softmax", g.node("Add", x, g.input("z", [1, 200_000])), axis=0)
    g.node("ReduceMax", y, axes=[0], keepdims=0, out="y")
    g.output("y", [200_000])
    return g.model().SerializeToString()


def deep_branches(depth: int = 40) -> bytes:
    """`If` in `If` in `If`, deeper than protobuf parses; put together byte by byte, since protobuf does not write it."""
    leaf = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", FLOAT, [1])],
    )
    other = leaf.SerializeToString()
    inner = leaf.SerializeToString()
    for _ in range(depth):
        branches = [
            _field(1, b"then_branch") + _field(6, inner),
            _field(1, b"else_branch") + _field(6, other),
        ]
        node = _field(1, b"flag") + _field(2, b"y") + _field(4, b"If")
        node += b"".join(_field(5, branch + b"\xa0\x01\x05") for branch in branches)
        inner = _field(1, node) + leaf.SerializeToString()[len(_field(1, leaf.node[0].SerializeToString())) :]
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, [1]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    inner += b"".join(_field(11, value.SerializeToString()) for value in inputs)
    opset = helper.make_opsetid("", 17).SerializeToString()
    return b"\x08\x08" + _field(7, inner) + _field(8, opset)


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited protobuf field."""
    length, size = bytearray(), len(data)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + data


def long_chain(nodes: int) -> bytes:
    g = GraphBuilder()
    x = g.input("x", [1, 4])
    for _ in range(nodes - 1):
        x = g.node("Relu", x)
    g.node("Relu", x, out="y")
    g.output("y", [1, 4])
    return g.model().SerializeToString()


def huge_name() -> bytes:
    return unknown_operator(name="n" * 2_000_000)


def escaping_name() -> bytes:
    return unknown_operator(name=TERMINAL_ESCAPE, operator="Bad\x1b]0;title\x07")


REFUSED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "empty": ("empty-file", lambda: b""),
    "text": ("not-protobuf", lambda: b"hello, this is no model at all\n" * 10),
    "zip": ("not-protobuf", lambda: b"PK\x03\x04" + bytes(100)),
    "noise": ("not-protobuf", lambda: np.random.default_rng(7).bytes(5000)),
    "truncated": ("truncated-model", truncated),
    "damaged inside": ("invalid-onnx", damaged_inside),
    "no graph": ("invalid-onnx", no_graph),
    "no inputs": ("invalid-onnx", no_inputs),
    "undefined tensor": ("invalid-onnx", undefined_tensor),
    "wrong types": ("invalid-onnx", wrong_types),
    "future opset": ("invalid-onnx", future_opset),
    "no opset": ("invalid-onnx", no_opset),
    "duplicate output": ("invalid-onnx", duplicate_output),
    "same output twice": ("invalid-onnx", same_output_twice),
    "zero stride": ("invalid-onnx", zero_stride),
    "zero groups": ("cannot-run", zero_groups),
    "many fields": ("not-protobuf", wide_fields),
    "not UTF-8": ("invalid-onnx", not_utf8),
    "deep branches": ("invalid-onnx", deep_branches),
    "external weight": ("external-data", external_weight),
    "external attribute": ("external-data", external_attribute),
    "external in function": ("external-data", external_in_function),
    "unknown operator": ("unsupported-operator", unknown_operator),
    "unknown domain": (
        "unsupported-operator",
        lambda: unknown_operator(domain="com.example", operator="Relu"),
    ),
    "unsupported in branch": ("unsupported-operator", unsupported_in_branch),
    "function that calls itself": ("invalid-onnx", recursive_function),
    "data-dependent output": ("unsupported-operator", data_dependent),
    "huge name": ("unsupported-operator", huge_name),
    "escaping name": ("unsupported-operator", escaping_name),
    "open dimension": ("unknown-dimension", lambda: input_of(["batch", 4])),
    "nameless dimension": ("unknown-dimension", lambda: input_of([None, 4])),
    "negative dimension": ("unknown-dimension", lambda: input_of([-1, 4])),
    "no shape": ("unknown-dimension", lambda: input_of(None)),
    "zero dimension": ("zero-size", lambda: input_of([0, 4])),
    "zero-size output": ("zero-size", zero_size_output),
    "string input": ("unsupported-dtype", lambda: input_of([2], TensorProto.STRING)),
    "complex input": ("unsupported-dtype", lambda: input_of([2], TensorProto.COMPLEX64)),
    "bfloat16 input": ("unsupported-dtype", lambda: input_of([2], TensorProto.BFLOAT16)),
    "bfloat16 output": ("unsupported-dtype", bfloat16_output),
    "bfloat16 weight of a float32 product": ("invalid-onnx", bfloat16_weight),
    "cast to float8": ("unsupported-dtype", cast_to_float8),
    "sequence input": ("unsupported-dtype", sequence_input),
    "huge input": ("too-large", huge_input),
    "huge inside": ("too-large", huge_inside),
    "folded division by zero": ("cannot-run", folded_division_by_zero),
    "ConstantOfShape bomb": ("import-memory", memory_bomb),
    "Expand bomb": ("import-memory", lambda: memory_bomb("Expand")),
    "Tile bomb": ("import-memory", lambda: memory_bomb("Tile")),
}
