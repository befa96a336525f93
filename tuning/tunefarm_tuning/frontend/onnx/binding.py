"""A network's real inputs: their element types, and sizes for the dimensions that the file leaves open."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

import onnx
from onnx import TensorProto

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.graph_reading import weights_of
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShape
from tunefarm_tuning.workload.task import TensorSpec

_SUPPORTED = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.DOUBLE: "float64",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
}
SUPPORTED_NAMES = tuple(_SUPPORTED.values())
TAKEN = f"{', '.join(SUPPORTED_NAMES)}, and inside the network bfloat16 (cast at its edges)"
"""For messages."""
_TEXT_FIX = (
    ": export the model behind what turns text into numbers, which your program then does (scikit-learn: export the last steps of "
    "the pipeline), or train it on integers for categories"
)


def dtype_name(element_type: int) -> str | None:
    """Return NumPy's and TVM's name of an ONNX element type; None if we do not support it."""
    return _SUPPORTED.get(element_type)


def onnx_name(element_type: int) -> str:
    """Return ONNX's own name of an element type, for messages."""
    try:
        return str(TensorProto.DataType.Name(element_type)).lower()
    except ValueError:
        return f"number {element_type}"


def real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller feeds. Before IR version 4 every weight is listed as an input as well."""
    weights = weights_of(graph)
    return [value for value in graph.input if value.name not in weights]


def bind_inputs(
    graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]], besides: Collection[str] = ()
) -> tuple[TensorSpec, ...]:
    """Return the network's inputs with every dimension known.

    A dimension's name that is bound in one input is bound in all of them, unless the shapes give it several sizes.

    Args:
        graph: The network.
        shapes: Shapes of inputs with open dimensions, by name.
        besides: Names of inputs that are bound to values. They are left out.

    Raises:
        InvalidModelError: With code unknown-input, bad-shape, zero-size, unknown-dimension or unsupported-dtype.
    """
    inputs = real_inputs(graph)
    refuse_unknown_names(inputs, shapes, "shape")
    inputs = [value for value in inputs if value.name not in besides]
    named = _named_sizes(inputs, shapes)
    dtypes = [input_dtype(value) for value in inputs]
    return tuple(
        TensorSpec(name=value.name, shape=_bound_shape(value, shapes.get(value.name), named), dtype=dtype)
        for value, dtype in zip(inputs, dtypes, strict=True)
    )


def dimension_names(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """Return the names that the file gives the dimensions of each input; empty for a dimension without a name."""
    return {
        value.name: [symbol_of(dim) for dim in value.type.tensor_type.shape.dim]
        for value in real_inputs(graph)
    }


def open_inputs(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the inputs whose shapes the file does not fix."""
    return [
        value.name
        for value in real_inputs(graph)
        if not value.type.tensor_type.HasField("shape")
        or any(dim.dim_value <= 0 for dim in value.type.tensor_type.shape.dim)
    ]


def open_shapes(
    graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]], besides: Collection[str] = ()
) -> tuple[OpenShape, ...]:
    """Return the shapes of the inputs as the file gives them. Dimensions without a name have their place as one.

    Args:
        graph: The network.
        shapes: Shapes that it takes. A name that has several sizes in them names nothing.
        besides: Names of inputs that are bound to values. They are left out.

    Raises:
        InvalidModelError: unknown-dimension, if the file does not say how many dimensions an input has.
    """
    named = _named_sizes(real_inputs(graph), shapes)
    result = []
    for value in real_inputs(graph):
        if value.name in besides:
            continue
        if not value.type.tensor_type.HasField("shape"):
            raise InvalidModelError(
                f"its file does not say how many dimensions input '{clean(value.name, 60)}' has",
                code="unknown-dimension",
                input=clean(value.name),
            )
        result.append(
            tuple(
                dim.dim_value
                if dim.dim_value > 0
                else OpenDimension(
                    name=symbol
                    if (symbol := symbol_of(dim)) and named.get(symbol) != 0
                    else f"{value.name}[{axis}]"
                )
                for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            )
        )
    return tuple(result)


def refuse_unknown_names(inputs: Sequence[onnx.ValueInfoProto], given: Iterable[str], kind: str) -> None:
    """Refuse a binding of an input that there is not; `kind` is ``"shape"`` or ``"value"``.

    Raises:
        InvalidModelError: unknown-input.
    """
    names = [value.name for value in inputs]
    for name in given:
        if name not in names:
            known = ", ".join(clean(n, 60) for n in names[:8]) or "none"
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean '{clean(near[0], 60)}'?" if near else ""
            raise InvalidModelError(
                f"a {kind} is given for input '{clean(name, 60)}', but the model has no such input; it has: {known}{hint}",
                code="unknown-input",
                input=clean(name),
            )


def fitting_binding(graph: onnx.GraphProto, given: Binding, *, resizable: bool) -> Binding:
    """Return what fits the inputs of a graph: the shapes and values of inputs that it has.

    Args:
        graph: The network.
        given: What a caller gave.
        resizable: Whether an input may have other sizes than the file fixes.
    """
    inputs = {value.name: value for value in real_inputs(graph)}
    return Binding(
        shapes={
            name: shape
            for name, shape in given.shapes.items()
            if name in inputs and (resizable or _fits(inputs[name], shape))
        },
        values={name: value for name, value in given.values.items() if name in inputs},
    )


def _fits(value: onnx.ValueInfoProto, shape: Sequence[int]) -> bool:
    try:
        _learn_names(value, shape, {})
    except InvalidModelError:
        return False
    return True


def several_sizes(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> str:
    """Return which dimension's name has several sizes in shapes that fit the file's, for people; empty if none has."""
    seen: dict[str, tuple[int, str]] = {}
    for value in real_inputs(graph):
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            symbol = symbol_of(dim)
            before, name = seen.setdefault(symbol, (size, value.name))
            if symbol and before != size:
                return (
                    f"dimension '{clean(symbol, 60)}' is {before} in input '{clean(name, 60)}' and {size} in input "
                    f"'{clean(value.name, 60)}'"
                )
    return ""


def _named_sizes(
    inputs: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Check the given shapes against the file's; return the sizes of named dimensions, 0 for a name that has several."""
    named: dict[str, int] = {}
    for value in inputs:
        if value.name in shapes:
            _learn_names(value, shapes[value.name], named)
    return named


def _learn_names(value: onnx.ValueInfoProto, shape: Sequence[int], named: dict[str, int]) -> None:
    """Check a given shape against the file's, and note the sizes of named dimensions."""
    name = clean(value.name, 60)
    text = _shape_text(shape)
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in shape):
        raise InvalidModelError(
            f"the shape {text} of input '{name}' is invalid: dimensions are whole numbers above zero",
            code="bad-shape",
            input=name,
        )
    if 0 in shape:
        raise _zero_size(name, list(shape).index(0))
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return
    dims = tensor.shape.dim
    if len(shape) != len(dims):
        raise InvalidModelError(
            f"the shape {text} given for input '{name}' has {len(shape)} dimensions, but the model's has "
            f"{len(dims)}: {_dims_text(dims)}",
            code="bad-shape",
            input=name,
        )
    for position, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if dim.dim_value > 0 and dim.dim_value != size:
            raise InvalidModelError(
                f"the shape {text} given for input '{name}' sets dimension {position} to {size}, but the model "
                f"fixes it to {dim.dim_value}: {_dims_text(dims)}",
                code="bad-shape",
                input=name,
                dimension=position,
            )
        symbol = symbol_of(dim)
        if symbol and named.setdefault(symbol, size) != size:
            # Some exporters give sizes that differ one name, and ONNX Runtime does not mind. It then says nothing of other inputs.
            named[symbol] = 0


def symbol_of(dim: onnx.TensorShapeProto.Dimension) -> str:
    """Return an open dimension's name; empty for exporters' marks of an unknown size, like ``?`` or ``-1``, which name nothing."""
    name = str(dim.dim_param)
    return name if any(character.isalpha() for character in name) else ""


def _bound_shape(
    value: onnx.ValueInfoProto, set_shape: Sequence[int] | None, named: Mapping[str, int]
) -> tuple[int, ...]:
    if set_shape is not None:
        return tuple(set_shape)
    name = clean(value.name, 60)
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise InvalidModelError(
            f"the model does not say how many dimensions input '{name}' has; give its shape",
            code="unknown-dimension",
            input=name,
            example=f"--shape {name}=1,...",
        )
    dims = tensor.shape.dim
    shape: list[int] = []
    for position, dim in enumerate(dims):
        symbol = symbol_of(dim)
        size = named.get(symbol, dim.dim_value)
        if size == 0 and dim.HasField("dim_value"):
            raise _zero_size(name, position)
        if size <= 0:
            label = f" ('{clean(symbol, 60)}')" if symbol else ""
            example = ",".join(str(d.dim_value) if d.dim_value > 0 else "1" for d in dims)
            raise InvalidModelError(
                f"dimension {position}{label} of input '{name}' is not fixed by the model, whose shape is "
                f"{_dims_text(dims)}; give the shape of every open input",
                code="unknown-dimension",
                input=name,
                example=f"--shape {name}={example}",
                dimension=clean(symbol, 60) if symbol else position,
            )
        shape.append(size)
    return tuple(shape)


def input_dtype(value: onnx.ValueInfoProto) -> str:
    """Return NumPy's name of an input's element type.

    Raises:
        InvalidModelError: unsupported-dtype.
    """
    name = clean(value.name, 60)
    type_name = type_word(value.type)
    if type_name != "tensor":
        raise InvalidModelError(
            f"input '{name}' is {article(type_name)} {type_name}; an artifact takes only dense tensors: export the model with tensors "
            "as its inputs, for example one for each element",
            code="unsupported-dtype",
            input=name,
            dtype=type_name,
        )
    dtype = dtype_name(value.type.tensor_type.elem_type)
    if dtype is None:
        type_name = onnx_name(value.type.tensor_type.elem_type)
        fix = _TEXT_FIX if type_name == "string" else ""
        raise InvalidModelError(
            f"input '{name}' has element type {type_name}; tunefarm supports {TAKEN}{fix}",
            code="unsupported-dtype",
            input=name,
            dtype=type_name,
        )
    return dtype


def type_word(kind: onnx.TypeProto) -> str:
    """Return what a value of a type is: tensor, sequence, optional, map, sparse tensor, opaque; "value of no type" without one."""
    field = kind.WhichOneof("value")
    return field.removesuffix("_type").replace("_", " ") if field is not None else "value of no type"


def article(noun: str) -> str:
    """Return the indefinite article of a noun, for messages."""
    return "an" if noun[0] in "aeio" else "a"


def _zero_size(name: str, position: int) -> InvalidModelError:
    return InvalidModelError(
        f"dimension {position} of input '{name}' is zero: there is nothing to compute; give sizes above zero",
        code="zero-size",
        input=name,
        dimension=position,
    )


def _shape_text(shape: Sequence[int]) -> str:
    return clean(
        "[" + ", ".join(str(size) for size in shape[:16]) + (", ..." if len(shape) > 16 else "") + "]"
    )


def _dims_text(dims: Sequence[onnx.TensorShapeProto.Dimension]) -> str:
    texts = [
        str(dim.dim_value) if dim.dim_value > 0 else clean(dim.dim_param, 30) or "?"
        for dim in list(dims)[:16]
    ]
    return "[" + ", ".join(texts) + (", ..." if len(dims) > 16 else "") + "]"
