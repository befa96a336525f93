"""Rules: the conditions that ONNX operators set on open sizes of their inputs. `size_rules` says which operator has which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tunefarm_tuning.tvm.frontend.node_context import UnsupportedFormError, constant_value, text
from tunefarm_tuning.tvm.frontend.size_conditions import SizeConditions

Shape = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedNode:
    """A node whose conditions are to be noted.

    Attributes:
        inputs: The inputs; None for an omitted one.
        shapes: Their shapes; None for one that is no tensor, or not known.
        attributes: The attributes.
        outputs: The number of outputs.
        results: The shapes of the outputs.
    """

    inputs: Sequence[Any]
    shapes: Sequence[Shape | None]
    attributes: Mapping[str, Any]
    outputs: int
    results: Sequence[Shape]

    def shape(self, number: int) -> Shape:
        """Return the shape of an input."""
        shape = self.shapes[number] if number < len(self.shapes) else None
        if shape is None:
            raise UnsupportedFormError("the shape of its input cannot be known before the model runs")
        return shape

    def has(self, number: int) -> bool:
        """Return whether an input is given."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def axis(self, default: int, rank: int) -> int:
        """Return the attribute ``axis``, counted from the front."""
        return int(self.attributes.get("axis", default)) % max(rank, 1)

    def numbers(self, number: int, attribute: str) -> list[int] | None:
        """Return integers that a constant input or an attribute gives; None if there are none."""
        if self.has(number):
            value = constant_value(self.inputs[number])
            if value is None:
                raise UnsupportedFormError(f"its {attribute} must be constants where sizes are open")
            return [int(item) for item in value.reshape(-1)]
        given = self.attributes.get(attribute)
        return None if given is None else [int(item) for item in given]


Rule = Callable[[SizeConditions, SizedNode], None]


def none(_conditions: SizeConditions, _node: SizedNode) -> None:
    """It takes any sizes."""


def broadcast(conditions: SizeConditions, node: SizedNode) -> None:
    """Sizes along an axis are equal, or 1."""
    _agree(conditions, [shape for shape in node.shapes if shape is not None])


def _agree(conditions: SizeConditions, shapes: Sequence[Shape]) -> None:
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        sizes = [size for shape in shapes if len(shape) >= axis and not _is(size := shape[-axis], 1)]
        for left, right in pairwise(sizes):
            conditions.equal(left, right)


def _same_shape(conditions: SizeConditions, left: Sequence[Any], right: Sequence[Any]) -> None:
    for size, other in zip(left, right, strict=True):
        conditions.equal(size, other)


def concat(conditions: SizeConditions, node: SizedNode) -> None:
    """Sizes are equal but along the axis."""
    first = node.shape(0)
    axis = node.axis(0, len(first))
    for number in range(1, len(node.inputs)):
        shape = node.shape(number)
        _same_shape(conditions, (*first[:axis], *first[axis + 1 :]), (*shape[:axis], *shape[axis + 1 :]))


def split(conditions: SizeConditions, node: SizedNode) -> None:
    """The parts add up."""
    shape = node.shape(0)
    size = shape[node.axis(0, len(shape))]
    parts = node.numbers(1, "split")
    if parts is None:
        conditions.multiple([size], [int(node.attributes.get("num_outputs", node.outputs))])
    else:
        conditions.equal(size, sum(parts))


def gather(conditions: SizeConditions, node: SizedNode) -> None:
    """Indices are within."""
    shape = node.shape(0)
    indices = constant_value(node.inputs[1])
    if indices is None or not indices.size or not shape:
        return
    size = shape[node.axis(0, len(shape))]
    conditions.least(size, max(int(indices.max()) + 1, -int(indices.min())))


def gather_elements(conditions: SizeConditions, node: SizedNode) -> None:
    """Indices are within; other sizes of them are at most those of the data."""
    shape, indices = node.shape(0), node.shape(1)
    axis = node.axis(0, len(shape))
    if (positions := constant_value(node.inputs[1])) is not None and positions.size:
        conditions.least(shape[axis], max(int(positions.max()) + 1, -int(positions.min())))
    for number, (size, taken) in enumerate(zip(shape, indices, strict=True)):
        if number != axis:
            conditions.least(conditions.simplified(size - taken), 0)


def gather_nd(conditions: SizeConditions, node: SizedNode) -> None:
    """Batches agree, and indices are within."""
    batches = int(node.attributes.get("batch_dims", 0))
    _same_shape(conditions, node.shape(0)[:batches], node.shape(1)[:batches])
    if (indices := constant_value(node.inputs[1])) is not None and indices.size:
        for position, size in enumerate(node.shape(0)[batches : batches + indices.shape[-1]]):
            taken = indices[..., position]
            conditions.least(size, max(int(taken.max()) + 1, -int(taken.min())))


def scatter_elements(conditions: SizeConditions, node: SizedNode) -> None:
    """Updates have the shape of the indices."""
    gather_elements(conditions, node)
    _same_shape(conditions, node.shape(1), node.shape(2))


def scatter_nd(conditions: SizeConditions, node: SizedNode) -> None:
    """Updates fit indices and data."""
    data, indices, updates = (node.shape(number) for number in range(3))
    _same_shape(conditions, updates, (*indices[:-1], *data[int(indices[-1]) :]))
    if (positions := constant_value(node.inputs[1])) is not None and positions.size:
        for position, size in enumerate(data[: positions.shape[-1]]):
            taken = positions[..., position]
            conditions.least(size, max(int(taken.max()) + 1, -int(taken.min())))


def pad(conditions: SizeConditions, node: SizedNode) -> None:
    """What is cut off, reflected or repeated is there."""
    shape = node.shape(0)
    if node.has(1) and constant_value(node.inputs[1]) is None:
        return  # computed of sizes: `converters.symbolic` has noted what they need
    pads = node.numbers(1, "pads")
    axes = node.numbers(3, "axes") or list(range(len(shape)))
    if pads is None:
        raise UnsupportedFormError("its pads must be constants where sizes are open")
    mode = text(dict(node.attributes), "mode", "constant")
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        size = shape[axis]
        longest = max(before, after)
        conditions.least(size, 1 - min(before, 0) - min(after, 0))
        if mode == "reflect" and longest > 0:
            conditions.least(size, longest + 1)
        elif mode == "wrap" and longest > 0:
            conditions.least(size, longest)


def conv(conditions: SizeConditions, node: SizedNode) -> None:
    """The kernel fits into the padded image where what it makes has at least one element."""
    shape, weight = node.shape(0), node.shape(1)
    conditions.equal(shape[1], weight[1] * int(node.attributes.get("group", 1)))


def conv_transpose(conditions: SizeConditions, node: SizedNode) -> None:
    """Channels are those of the weight."""
    conditions.equal(node.shape(0)[1], node.shape(1)[0])


def quantized(rule: Rule) -> Rule:
    """Return the rule of an operator whose second tensor comes after scale and zero point of the first."""

    def noted(conditions: SizeConditions, node: SizedNode) -> None:
        rule(conditions, replace(node, inputs=node.inputs[:4:3], shapes=node.shapes[:4:3]))

    return noted


def quantized_concat(conditions: SizeConditions, node: SizedNode) -> None:
    """Scale and zero point of the result, then tensors, each with its scale and zero point."""
    concat(conditions, replace(node, inputs=node.inputs[2::3], shapes=node.shapes[2::3]))


def matmul(conditions: SizeConditions, node: SizedNode) -> None:
    """Inner sizes are equal; batches broadcast."""
    left, right = node.shape(0), node.shape(1)
    conditions.equal(left[-1], right[-2] if len(right) > 1 else right[0])
    _agree(conditions, [left[:-2], right[:-2]])


def gemm(conditions: SizeConditions, node: SizedNode) -> None:
    """Inner sizes are equal; the third tensor broadcasts."""
    left, right = node.shape(0), node.shape(1)
    conditions.equal(
        left[0 if node.attributes.get("transA", 0) else 1],
        right[1 if node.attributes.get("transB", 0) else 0],
    )
    if node.has(2):
        _agree(conditions, [node.results[0], node.shape(2)])


def einsum(conditions: SizeConditions, node: SizedNode) -> None:
    """Sizes of one letter are equal."""
    equation = text(dict(node.attributes), "equation", "").replace(" ", "")
    if "." in equation:
        raise UnsupportedFormError("an ellipsis is not supported where sizes are open")
    sizes: dict[str, Any] = {}
    for number, labels in enumerate(equation.split("->")[0].split(",")):
        for label, size in zip(labels, node.shape(number), strict=True):
            conditions.equal(sizes.setdefault(label, size), size)


def last_axes(conditions: SizeConditions, node: SizedNode) -> None:
    """Scale and shift fit the axes that are normalised."""
    _agree(conditions, [shape for shape in node.shapes[:3] if shape is not None])


def channels(conditions: SizeConditions, node: SizedNode) -> None:
    """All parameters have one element for each channel."""
    for number in range(1, len(node.inputs)):
        if node.shapes[number]:
            conditions.equal(node.shape(0)[1], node.shape(number)[0])


def group_norm(conditions: SizeConditions, node: SizedNode) -> None:
    """Channels are whole groups."""
    conditions.multiple([node.shape(0)[1]], [int(node.attributes["num_groups"])])


def depth_to_space(conditions: SizeConditions, node: SizedNode) -> None:
    """Channels are whole blocks."""
    conditions.multiple([node.shape(0)[1]], [int(node.attributes["blocksize"]) ** 2])


def space_to_depth(conditions: SizeConditions, node: SizedNode) -> None:
    """Height and width are whole blocks."""
    for size in node.shape(0)[2:]:
        conditions.multiple([size], [int(node.attributes["blocksize"])])


def top_k(conditions: SizeConditions, node: SizedNode) -> None:
    """There are as many elements as it takes."""
    shape = node.shape(0)
    count = [int(node.attributes["k"])] if "k" in node.attributes else node.numbers(1, "k")
    conditions.least(shape[node.axis(-1, len(shape))], max(count or [1]))


def squeeze(conditions: SizeConditions, node: SizedNode) -> None:
    """Sizes that it drops are 1."""
    shape = node.shape(0)
    for axis in node.numbers(1, "axes") or ():
        conditions.equal(shape[axis], 1)


def recurrent(*, units: int) -> Rule:
    """First states and lengths have the batch of the input, whose last size is that of the weights.

    Args:
        units: The axis of the matrices that has an element for each input or state, not for each gate.
    """

    def rule(conditions: SizeConditions, node: SizedNode) -> None:
        shape = node.shape(0)
        conditions.equal(shape[2], node.shape(1)[units])
        batch_first = bool(node.attributes.get("layout", 0))
        batch = shape[0 if batch_first else 1]
        if node.has(4):
            conditions.equal(node.shape(4)[0], batch)
        for number in (5, 6):
            if node.has(number):
                state, weight = node.shape(number), node.shape(2)
                conditions.equal(state[0 if batch_first else 1], batch)
                conditions.equal(state[1 if batch_first else 0], weight[0])
                conditions.equal(state[2], weight[units])

    return rule


def per_axis(conditions: SizeConditions, node: SizedNode) -> None:
    """Scale and zero point are single, or have one element for each place along an axis."""
    shape, scale = node.shape(0), node.shape(1)
    if len(scale) == 1 and not _is(scale[0], 1):
        conditions.equal(shape[node.axis(1, len(shape))], scale[0])
    elif len(scale) > 1:
        raise UnsupportedFormError("blocks of scales are not supported where sizes are open")


def grid_sample(conditions: SizeConditions, node: SizedNode) -> None:
    """Batches agree."""
    conditions.equal(node.shape(0)[0], node.shape(1)[0])


def by_column(*attributes: str) -> Rule:
    """Return the rule of an operator whose attributes have a number for each column, or one for all."""

    def noted(conditions: SizeConditions, node: SizedNode) -> None:
        for name in attributes:
            if (count := len(node.attributes.get(name, ()))) > 1:
                conditions.equal(node.shape(0)[-1], count)

    return noted


def columns_taken(conditions: SizeConditions, node: SizedNode) -> None:
    """The columns are there."""
    if (columns := constant_value(node.inputs[1])) is not None and columns.size:
        conditions.least(node.shape(0)[-1], int(columns.max()) + 1)


def side_by_side(conditions: SizeConditions, node: SizedNode) -> None:
    """Rows are equally many."""
    for number in range(1, len(node.inputs)):
        conditions.equal(node.shape(0)[0], node.shape(number)[0])


def _is(size: Any, number: int) -> bool:
    return isinstance(size, int) and size == number
