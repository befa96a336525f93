"""A network that is imported for all sizes says which sizes it takes: those with which ONNX Runtime runs it, and no others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import GraphBuilder

from tunefarm_tuning.artifact.sizes import SizeChecks
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.tvm.frontend.importer import OpenModule, import_open
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.open_shape import OpenDimension, OpenShapes

END = 2**31 - 1


def network(build: Callable[..., str], *shapes: list[int | str]) -> onnx.ModelProto:
    g = GraphBuilder()
    g.output(build(g, *[g.input(f"x{number}", shape) for number, shape in enumerate(shapes)]))
    return g.model()


def sliced(g: GraphBuilder, x: str, start: int, end: int, step: int = 1) -> str:
    return str(g.node("Slice", x, g.ints(start), g.ints(end), g.ints(1), g.ints(step)))


def image_in_windows(g: GraphBuilder, x: str) -> str:
    shape = g.node("Shape", x)
    rows, columns = (g.node("Div", g.node("Gather", shape, g.ints(axis)), g.ints(3)) for axis in (0, 1))
    return str(g.node("Reshape", x, g.node("Concat", rows, g.ints(3), columns, g.ints(3), axis=0)))


def positions_after_two(g: GraphBuilder, x: str) -> str:
    width = g.node("Gather", g.node("Shape", x), g.constant(np.array(1)))
    zero, two, step = (g.constant(np.array(value)) for value in (0, 2, 1))
    ramp = g.node("Range", zero, g.node("Sub", width, two), step)
    return str(g.node("Add", g.node("Cast", ramp, to=1), sliced(g, x, 2, END)))


def first_states(g: GraphBuilder, x: str, state: str) -> str:
    weights = [g.weight(1, 20, size) for size in (6, 5)]
    return str(g.node("LSTM", x, *weights, "", "", state, hidden_size=5, outputs=2)[0])


NETWORKS: dict[str, onnx.ModelProto] = {
    "rows of four": network(lambda g, x: g.node("Reshape", x, g.ints(-1, 4)), ["n", "t"]),
    "blocks of four rows": network(lambda g, x: g.node("Reshape", x, g.ints(-1, 64)), ["n", "t", 16]),
    "24 elements": network(lambda g, x: g.node("Reshape", x, g.ints(4, 6)), ["n", "t"]),
    "columns in threes": network(lambda g, x: g.node("Reshape", x, g.ints(0, -1, 3)), ["n", "t"]),
    "windows": network(image_in_windows, ["h", "w"]),
    "rows after a convolution": network(
        lambda g, x: g.node(
            "Reshape", g.node("Conv", x, g.weight(4, 2, 3), kernel_shape=[3], strides=[2]), g.ints(-1, 8)
        ),
        ["n", 2, "t"],
    ),
    "equal parts": network(lambda g, x: g.node("Split", x, axis=1, outputs=3)[0], ["n", "t"]),
    "parts of two and five": network(
        lambda g, x: g.node("Split", x, g.ints(2, 5), axis=1, outputs=2)[1], ["n", "t"]
    ),
    "channels to pixels": network(lambda g, x: g.node("DepthToSpace", x, blocksize=2), ["c", 4, "h", 2]),
    "channels of open number": network(
        lambda g, x: g.node("Conv", x, g.weight(4, 3, 3), group=2, kernel_shape=[3]), [1, "c", "t"]
    ),
    "kernel with gaps": network(
        lambda g, x: g.node("Conv", x, g.weight(2, 3, 3, 3), kernel_shape=[3, 3], dilations=[2, 3]),
        [1, 3, "h", "w"],
    ),
    "transposed convolution that cuts off": network(
        lambda g, x: g.node("ConvTranspose", x, g.weight(2, 3, 4), kernel_shape=[4], strides=[2], pads=[3, 3]),
        ["n", 2, "t"],
    ),
    "pool": network(
        lambda g, x: g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2]), [1, 3, "h", "w"]
    ),
    "without both ends": network(lambda g, x: sliced(g, x, 3, -2), ["n", "t"]),
    "neighbours": network(lambda g, x: g.node("Add", sliced(g, x, 1, END), sliced(g, x, 0, -1)), ["n", "t"]),
    "even and odd columns": network(
        lambda g, x: g.node("Concat", sliced(g, x, 0, END, 2), sliced(g, x, 1, END, 2), axis=1), ["n", "t"]
    ),
    "cut by a pad": network(lambda g, x: g.node("Pad", x, g.ints(0, -2, 0, -3)), ["n", "t"]),
    "reflected": network(lambda g, x: g.node("Pad", x, g.ints(0, 4, 0, 2), mode="reflect"), ["n", "t"]),
    "two lengths in rows": network(
        lambda g, x, y: g.node("MatMul", x, y), ["n", "t"], ["s", 3]
    ),
    "sixth of each row": network(lambda g, x: g.node("Gather", x, g.ints(5, -3), axis=1), ["n", "t"]),
    "largest four": network(lambda g, x: g.node("TopK", x, g.ints(4), axis=1, outputs=2)[0], ["n", "t"]),
    "weight of six columns": network(lambda g, x: g.node("Gemm", x, g.weight(6, 5)), ["n", "t"]),
    "places to write to": network(
        lambda g, x: g.node("ScatterElements", x, g.ints(1, 2), g.weight(2), axis=0), ["n"]
    ),
    "first states": network(first_states, ["s", "n", 6], ["d", "m", "h"]),
    "positions": network(positions_after_two, ["n", "t"]),
}  # fmt: skip


STRICTER = (
    "pool",  # ONNX Runtime runs a kernel of 3 on 2 pixels: -1 / 2 is 0 there
    "even and odd columns",  # of which one may be empty there
)


def opened(model: onnx.ModelProto, sizes: dict[str, int]) -> OpenModule:
    shapes = [
        tuple(
            OpenDimension(name=dim.dim_param) if dim.dim_param else dim.dim_value
            for dim in value.type.tensor_type.shape.dim
        )
        for value in model.graph.input
    ]
    bound = {
        value.name: tuple(sizes[size.name] if isinstance(size, OpenDimension) else size for size in shape)
        for value, shape in zip(model.graph.input, shapes, strict=True)
    }
    copy = onnx.load_model_from_string(model.SerializeToString())
    return import_open(bind_model(copy, Binding(shapes=bound)), shapes)


def takes(module: OpenModule, sizes: dict[str, int]) -> bool:
    taken = OpenShapes(shapes=module.shapes, minima=module.minima, maxima=module.maxima)
    return all(taken.fitting(name, size) == size for name, size in sizes.items()) and not SizeChecks(
        module.conditions
    ).why_not(sizes)


def runs(session: onnxruntime.InferenceSession, sizes: dict[str, int]) -> bool:
    feeds = {
        value.name: np.ones([sizes.get(size, size) for size in value.shape], np.float32)
        for value in session.get_inputs()
    }
    try:
        outputs = session.run(None, feeds)
    except Exception:
        return False
    return all(output.size for output in outputs)


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("name", NETWORKS)
def test_it_takes_the_sizes_that_onnx_runtime_takes(name: str) -> None:
    model = NETWORKS[name]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = sorted({size for value in session.get_inputs() for size in value.shape if isinstance(size, str)})
    most = 12 if len(names) < 4 else 5
    choices: list[dict[str, int]] = [
        dict(zip(names, sizes, strict=True))
        for sizes in itertools.product(range(1, most + 1), repeat=len(names))
    ]
    run = [choice for choice in choices if runs(session, choice)]
    module = opened(model, run[-1])
    accepted = [choice for choice in choices if takes(module, choice)]
    assert all(choice in run for choice in accepted)
    assert len(accepted) > 1
    assert accepted == run or name in STRICTER


def test_an_operator_of_unknown_conditions_is_refused() -> None:
    model = network(
        lambda g, x: g.node("ReverseSequence", x, g.ints(1, 2, 3), batch_axis=0, time_axis=1), [3, "t"]
    )
    with pytest.raises(InvalidModelError, match=r"ReverseSequence.*the sizes that it accepts are not known"):
        opened(model, {"t": 4})


def test_sizes_that_never_fit_are_refused() -> None:
    model = network(
        lambda g, x: g.node("Add", g.node("Reshape", x, g.ints(-1, 4)), sliced(g, x, 0, 4)), ["n", 4]
    )
    module: Any = opened(model, {"n": 3})
    assert (module.conditions, module.minima) == ((), {})
    never = network(lambda g, x: g.node("Reshape", x, g.ints(0, 5)), ["n", 4])
    with pytest.raises(InvalidModelError):
        opened(never, {"n": 1})
