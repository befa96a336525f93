"""Bindings worth a try for a network whose open dimensions and settings nobody bound, the likeliest first.

What tells: the weights that an input meets, the file's metadata, the names and positions of dimensions, and the constants that
a condition compares an input with. Whether a network runs with a binding is tried by the caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import onnx
from onnx import TensorProto

from tunefarm_tuning.frontend.onnx.binding import dtype_name, real_inputs, symbol_of
from tunefarm_tuning.frontend.onnx.control_flow.flatten import is_control_flow
from tunefarm_tuning.frontend.onnx.graph_reading import all_nodes, ancestors, constant_tensors
from tunefarm_tuning.frontend.onnx.proposals.corrections import wanted_sizes
from tunefarm_tuning.frontend.onnx.proposals.relations import Key, names_in, size_of, totals
from tunefarm_tuning.workload.binding import Binding, Value

MAX_PROPOSALS = 24

_SIZES = {
    "batch": (1,),
    "channels": (3, 1),
    # Of images: heights and widths belong together.
    "height": (224, 256, 320, 640, 48, 32, 64, 512, 32),
    "width": (224, 256, 320, 640, 320, 320, 256, 512, 32),
    # Of lines of text, whose height the file fixes.
    "line": (320, 160, 256, 128),
    # Of feature maps.
    "side": (64, 32, 128, 16),
    "length": (128, 64, 256, 16, 512, 8, 1, 100, 32, 50, 10, 2),
    "samples": (16000, 512, 576, 8000, 256, 1024, 288, 160000),
    "mono": (1,),
}
_LINE_HEIGHT = 96
_IMAGE_CHANNELS = frozenset({1, 2, 3, 5, 6})
"""Numbers of channels that pictures have; four are mostly those of a latent."""
_BATCH = re.compile(r"batch|^(n|b|bs)$")
_CHANNELS = re.compile(r"chan|^c$")
_HEIGHT = re.compile(r"height|rows|^h$")
_WIDTH = re.compile(r"width|cols|^w$")
_SAMPLES = re.compile(r"sample|audio|wav|pcm|signal")
_LENGTH = re.compile(r"seq|len|token|time|step|frame|word|text|past|^(t|l|s)$")
_MOMENT = re.compile(r"step|time")
_COUNT = re.compile(r"node|edge|point|atom|vert|box|roi|object|residue|ray")
_NOTHING = re.compile(r"(?!)")
_EDGES = re.compile(r"edge")
_STATE = re.compile(
    r"state|hidden|cache|past|(self|cross)_(k|v)|^(h|c|h0|c0|hx|cx|hn|cn)$|^(h|c)_(in|0|prev)"
)
_SIDES = frozenset({"imgsz", "image_size", "input_size", "img_size", "input_shape", "shape"})
"""Keys of a file's metadata under which exporters write an image's height and width."""
_KEEPS_SHAPE = frozenset(
    {"Cast", "Identity", "Sub", "Mul", "Div", "Add", "QuantizeLinear", "DequantizeLinear"}
)
_COMPARES = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_MULTIPLES = (8, 16, 32, 64)
_BATCH_CORRECTIONS = 3
_SETTING_TYPES = frozenset({TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64})


def propose(model: onnx.ModelProto, given: Binding) -> Iterator[Binding]:
    """Yield bindings to try, each complete: with the shape of every open input.

    Args:
        model: The file's model, not bound.
        given: What the caller bound already. It is kept, but sizes that do not run may be rounded up.
    """
    return islice(_proposals(model, given), MAX_PROPOSALS)


def _proposals(model: onnx.ModelProto, given: Binding) -> Iterator[Binding]:
    values = _settings(model, given)
    inputs, open_shapes = _open_shapes(model, given, values)
    for multiple in _MULTIPLES if given.shapes else ():
        yield Binding(
            shapes={
                name: _rounded(given.shapes.get(name), shape, multiple) for name, shape in open_shapes.items()
            },
            values=values,
        )
    kinds = _all_kinds(inputs, open_shapes)
    sides = _metadata_sides(model)
    attempts = max((len(_SIZES[kind]) for kind in kinds.values()), default=1)
    for attempt in range(-1 if sides else 0, attempts):
        chosen: dict[Key, int] = {}
        for key, kind in kinds.items():
            sizes = _SIZES[kind]
            by_file = sides if attempt < 0 and kind in ("height", "width") else None
            size = by_file[kind == "width"] if by_file else sizes[min(max(attempt, 0), len(sizes) - 1)]
            chosen[key] = size
        yield _composed(inputs, open_shapes, chosen, values)


def corrections(model: onnx.ModelProto, given: Binding, binding: Binding, message: str) -> Iterator[Binding]:
    """Yield bindings like one with which the network did not run, each with another size of one open dimension.

    Args:
        model: The file's model, not bound.
        given: What the caller bound.
        binding: One that `propose` or this made.
        message: Why the network did not run.
    """
    inputs, open_shapes = _open_shapes(model, given, binding.values)
    sizes = {
        key: size
        for name, shape in open_shapes.items()
        if name in binding.shapes
        for key, size in zip(shape, binding.shapes[name], strict=False)
        if not isinstance(key, int)
    }
    batches = {key for key, kind in _all_kinds(inputs, open_shapes).items() if kind == "batch"}
    wanted = {
        key: wanted_sizes(sizes[key], message)[: _BATCH_CORRECTIONS if key in batches else None]
        for key in sorted(sizes, key=batches.__contains__)
        if not names_in(key)
    }
    for rank in range(max(map(len, wanted.values()), default=0)):
        for key, candidates in wanted.items():
            if rank < len(candidates):
                yield _composed(inputs, open_shapes, {**sizes, key: candidates[rank]}, binding.values)


def takes_images(model: onnx.ModelProto, given: Binding) -> bool:
    """Return whether a network has an input that seems to be an image of open height or width."""
    inputs, open_shapes = _open_shapes(model, given, _settings(model, given))
    return not {"height", "width"}.isdisjoint(_all_kinds(inputs, open_shapes).values())


def _open_shapes(
    model: onnx.ModelProto, given: Binding, values: Mapping[str, Value]
) -> tuple[list[onnx.ValueInfoProto], dict[str, list[int | Key]]]:
    """Return the inputs that stay inputs, and the shapes of those that the file leaves open."""
    inputs = [value for value in real_inputs(model.graph) if value.name not in values]
    shapes = {value.name: _sizes(model.graph, value, given) for value in inputs}
    return inputs, {
        value.name: shape
        for value in inputs
        if (shape := shapes[value.name]) is not None
        and any(not isinstance(size, int) for size in _of_file(value, shape))
    }


def _composed(
    inputs: Sequence[onnx.ValueInfoProto],
    open_shapes: Mapping[str, Sequence[int | Key]],
    chosen: Mapping[Key, int],
    values: Mapping[str, Value],
) -> Binding:
    """Return the binding of chosen sizes; those that follow from others are computed."""
    sizes = dict(chosen)
    integers = {value.name for value in inputs if _is_integer(value)}
    for key, (past, words) in totals(open_shapes, integers).items():
        sizes[key] = sizes[past] + sizes[words]
    sizes |= {key: size for key in chosen if (size := size_of(key, sizes)) is not None}
    return Binding(
        shapes={
            name: tuple(size if isinstance(size, int) else sizes[size] for size in shape)
            for name, shape in open_shapes.items()
        },
        values=values,
    )


def _of_file(value: onnx.ValueInfoProto, shape: Sequence[int | Key]) -> Sequence[int | Key]:
    """Return an input's shape as the file has it, as far as it fixes it."""
    if not value.type.tensor_type.HasField("shape"):
        return [value.name]
    return (
        [
            dim.dim_value if dim.dim_value > 0 else key
            for dim, key in zip(value.type.tensor_type.shape.dim, _keys(value), strict=True)
        ]
        if shape
        else shape
    )


def _keys(value: onnx.ValueInfoProto) -> list[Key]:
    return [
        symbol_of(dim) or (value.name, position)
        for position, dim in enumerate(value.type.tensor_type.shape.dim)
    ]


def _sizes(graph: onnx.GraphProto, value: onnx.ValueInfoProto, given: Binding) -> list[int | Key] | None:
    """Return an input's sizes, and keys of those that are not known; None if not even their number is."""
    required = _required_sizes(graph, value.name)
    if not value.type.tensor_type.HasField("shape"):
        if value.name in given.shapes:
            return list(given.shapes[value.name])
        if required is None:
            return None
        rank, known = required
        return [known.get(position, (value.name, position)) for position in range(rank)]
    known = required[1] if required is not None else {}
    return [
        dim.dim_value if dim.dim_value > 0 else known.get(position, key)
        for position, (dim, key) in enumerate(
            zip(value.type.tensor_type.shape.dim, _keys(value), strict=True)
        )
    ]


def _required_sizes(graph: onnx.GraphProto, name: str) -> tuple[int, dict[int, int]] | None:
    """Return the rank of an input and the sizes that the first weight that it meets demands; None if it meets none."""
    weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for _ in graph.node:  # in a graph that is not sound, values may follow from each other
        users = [node for node in graph.node if name in node.input]
        for node in users:
            weight = weights.get(node.input[1]) if len(node.input) > 1 and node.input[0] == name else None
            if node.op_type == "Conv" and weight:
                groups = next((a.i for a in node.attribute if a.name == "group"), 1)
                return len(weight), {1: weight[1] * groups}
            if node.op_type == "Gemm" and weight:
                turned = next((a.i for a in node.attribute if a.name == "transB"), 0)
                return 2, {1: weight[1 if turned else 0]}
        follow = next(
            (
                node
                for node in users
                if node.op_type in _KEEPS_SHAPE and node.input[0] == name and node.output
            ),
            None,
        )
        if follow is None or len(users) != 1:
            return None
        name = follow.output[0]
    return None


def _all_kinds(
    inputs: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int | Key]]
) -> dict[Key, str]:
    """Return what each open dimension seems to be: a key of `_SIZES`. What a state says of a dimension counts most."""
    ordered = sorted(inputs, key=lambda value: not _STATE.search(value.name.lower()))
    is_graph = any(_EDGES.search(value.name.lower()) for value in inputs)
    kinds: dict[Key, str] = {}
    for value in ordered:
        shape = shapes.get(value.name, ())
        for position, key in enumerate(shape):
            if isinstance(key, int) or key in kinds:
                continue
            kind = _kind(value, shape, position)
            is_second = position == 0 and any(
                not isinstance(other, int) and other != key and kinds.get(other) == "batch"
                for other in shape[1:]
            )
            kinds[key] = "length" if kind == "batch" and (is_graph or is_second) else kind
    for key in [key for key in kinds if names_in(key)]:
        for name in names_in(key):
            kinds.setdefault(name, kinds[key])
    return kinds


def _kind(value: onnx.ValueInfoProto, shape: Sequence[int | Key], position: int) -> str:
    key, rank = shape[position], len(shape)
    # Some exporters name all dimensions after their input: "audio_signal_dynamic_axes_1".
    name = key.lower().replace(value.name.lower(), "") if isinstance(key, str) else ""
    is_integer = _is_integer(value)
    of_features = rank == 3 and isinstance(shape[1], int)  # of a spectrogram
    is_sound = not is_integer and (
        rank == 2 or _has_channels(shape) or (not of_features and bool(_SAMPLES.search(value.name.lower())))
    )
    before = shape[position - 1] if position else None
    line = "line" if isinstance(before, int) and before <= _LINE_HEIGHT else "width"
    is_latent = rank == 4 and isinstance(shape[1], int) and shape[1] not in _IMAGE_CHANNELS
    if _STATE.search(value.name.lower()) and not _BATCH.search(name):
        return (
            "batch" if all(isinstance(size, int) for size in shape[:position]) and position <= 1 else "length"
        )
    for pattern, kind in (
        (_BATCH, "batch"),
        (_CHANNELS, "mono" if is_sound and rank == 3 else "channels"),
        (_HEIGHT, "side" if is_latent else "height"),
        (_WIDTH, "side" if is_latent else line),
        (_SAMPLES, "batch" if position == 0 and rank > 1 else "samples"),
        (_MOMENT if rank == 1 and is_integer else _NOTHING, "batch"),
        (_LENGTH, "samples" if is_sound and position == rank - 1 else "length"),
        (_COUNT, "length"),
    ):
        if pattern.search(name):
            return kind
    if rank == 4:
        return ("batch", "channels", *(("side", "side") if is_latent else ("height", line)))[position]
    if position == 0 and rank > 1:
        return "batch"
    if rank == 1 and is_integer:
        return "batch"
    return "length" if is_integer or (rank > 2 and not (is_sound and position == 2)) else "samples"


def _is_integer(value: onnx.ValueInfoProto) -> bool:
    return (dtype_name(value.type.tensor_type.elem_type) or "").startswith(("int", "uint"))


def _has_channels(shape: Sequence[int | Key]) -> bool:
    """Return whether a shape seems to be batch, channels and samples."""
    channels = shape[1] if len(shape) == 3 else 0
    return channels == 1 or (isinstance(channels, str) and bool(_CHANNELS.search(channels.lower())))


def _rounded(given: Sequence[int] | None, shape: Sequence[int | Key], multiple: int) -> tuple[int, ...]:
    """Return an input's given sizes, the open ones from the third on rounded up to a multiple."""
    if given is None or len(given) != len(shape):
        return tuple(size if isinstance(size, int) else 1 for size in shape)
    return tuple(
        size if isinstance(own, int) or position < 2 else -(-size // multiple) * multiple
        for position, (size, own) in enumerate(zip(given, shape, strict=True))
    )


def _metadata_sides(model: onnx.ModelProto) -> tuple[int, int] | None:
    """Return the height and width that the file's metadata names, if it does."""
    for entry in model.metadata_props:
        if entry.key.lower() not in _SIDES or len(entry.value) > 200:
            continue
        try:
            sizes = json.loads(entry.value)
        except (ValueError, RecursionError):
            continue
        sizes = [sizes, sizes] if isinstance(sizes, int) else sizes
        if (
            isinstance(sizes, list)
            and len(sizes) >= 2
            and all(type(size) is int and 0 < size < 1 << 14 for size in sizes)
        ):
            return sizes[-2], sizes[-1]
    return None


def _settings(model: onnx.ModelProto, given: Binding) -> Mapping[str, Value]:
    """Return the given values, and those of scalar inputs that decide control flow: what they are compared with."""
    values = dict(given.values)
    if not any(is_control_flow(node) for node in all_nodes(model.graph)):
        return values
    decided = _deciding(model.graph)
    for value in real_inputs(model.graph):
        tensor = value.type.tensor_type
        is_scalar = tensor.HasField("shape") and all(dim.dim_value == 1 for dim in tensor.shape.dim)
        if (
            value.name in values
            or value.name not in decided
            or not is_scalar
            or tensor.elem_type not in _SETTING_TYPES
        ):
            continue
        number = _compared_with(model.graph, value.name)
        values[value.name] = True if tensor.elem_type == TensorProto.BOOL else 1 if number is None else number
    return values if len(values) < len(real_inputs(model.graph)) else dict(given.values)


def _deciding(graph: onnx.GraphProto) -> set[str]:
    """Return the names of all tensors that conditions and numbers of steps are computed of."""
    return ancestors(
        graph, [name for node in all_nodes(graph) if is_control_flow(node) for name in node.input[:2]]
    )


def _compared_with(graph: onnx.GraphProto, name: str) -> int | None:
    """Return the first whole number that an input is compared with."""
    constants = dict(constant_tensors(graph))
    for node in all_nodes(graph):
        if node.op_type in _COMPARES:
            sides = [ancestors(graph, [side]) for side in node.input]
            for position, other in enumerate(node.input):
                if other in constants and name in sides[1 - position]:
                    numbers = onnx.numpy_helper.to_array(constants[other]).reshape(-1)
                    if numbers.size == 1:
                        return int(numbers[0])
    return None
