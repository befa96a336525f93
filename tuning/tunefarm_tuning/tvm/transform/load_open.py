"""Read and prepare a network for all sizes of the dimensions that its file leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.binding import bind_inputs, open_shapes
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork, bind_model
from tunefarm_tuning.frontend.onnx.control_flow.flatten import has_control_flow
from tunefarm_tuning.frontend.onnx.model_file import read_model
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.relax_graph import tensor_dtype
from tunefarm_tuning.tvm.frontend.importer import OpenModule, import_open
from tunefarm_tuning.tvm.frontend.node_context import NoOneShapeError
from tunefarm_tuning.tvm.frontend.size_conditions import size_of_plain
from tunefarm_tuning.tvm.transform.horizontal_fusion.selection import select_faster, select_none
from tunefarm_tuning.tvm.transform.named_sums import named_sums
from tunefarm_tuning.tvm.transform.pipeline import prepare
from tunefarm_tuning.tvm.transform.weights.storage import store_weights
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.open_shape import (
    OpenDimension,
    OpenShape,
    OpenShapes,
    open_dimensions,
    with_dimensions,
)
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.task import TensorSpec

_KEPT_BYTES = 256 << 20
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
"""What sizes may have to be multiples of: a network that halves an image and doubles it again often fits no odd sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNetwork:
    """A prepared network for all sizes of some dimensions.

    Attributes:
        module: Lowered. Its ``main`` takes the inputs in order, and refuses sizes that are no multiples.
        shapes: The shapes that it takes.
    """

    module: tvm.IRModule
    shapes: OpenShapes


def load_open(
    path: Path | str, bindings: Sequence[Binding], target: Target, precision: Precision = Precision.AS_MODEL
) -> OpenNetwork:
    """Read a file and prepare its network for all sizes of the dimensions that the file leaves open.

    If it takes no one form for all of them, a dimension that has the same size in all `bindings` keeps that: a text
    recogniser is often open in the height of its lines as well, and fits only one.

    Args:
        path: The file.
        bindings: The sets of shapes that it takes, the main one first, and the values of inputs that became constants.
        target: As for `load_relax`.
        precision: As for `load_relax`.

    Raises:
        InvalidModelError: unsupported-operator: no dimension is open, or a node can be compiled for fixed sizes only.
    """
    binding = bindings[0]
    file = _File(path, bindings)
    shapes = open_shapes(file.graph, binding.shapes, besides=binding.values)
    if not any(isinstance(size, OpenDimension) for shape in shapes for size in shape):
        raise InvalidModelError("its file fixes the shapes of all inputs", code="unsupported-operator")
    _refuse_branches_by_size(file, shapes)
    opened, shapes = _import_widest(file, shapes)
    computed, guessed = named_sums(shapes, file.inputs)
    taken = OpenShapes(
        shapes=opened.shapes,
        minima=opened.minima,
        maxima=opened.maxima,
        conditions=(*opened.conditions, *computed),
        usual=tuple(guessed),
    )
    _refuse_unfit(file, taken)
    del file  # a copy of all weights
    selection = select_none if precision.stores_weights else select_faster
    prepared, _ = prepare(opened.module, target, select=selection)
    module, _ = store_weights(_with_sizes_of_inputs(prepared, shapes, taken), precision)
    return OpenNetwork(module=module, shapes=taken)


class _File:
    """A file that is tried in several sizes. A small one is read once, a large one each time: copies of its weights would fill the memory.

    Attributes:
        main: The main set of shapes, and the values.
    """

    def __init__(self, path: Path | str, bindings: Sequence[Binding]) -> None:
        self.main = bindings[0]
        self._path = path
        self._bindings = bindings
        is_large = Path(path).stat().st_size > _KEPT_BYTES
        self._kept = None if is_large else read_model(path, self.main.shapes)

    def _model(self) -> Any:
        """Return the model, which may be changed."""
        return read_model(self._path, self.main.shapes) if self._kept is None else deepcopy(self._kept)

    @property
    def graph(self) -> Any:
        """The graph, before anything is bound; it must not be changed."""
        return (self._kept or self._model()).graph

    @cached_property
    def inputs(self) -> list[tuple[TensorSpec, ...]]:
        """The inputs in each set of shapes, the main one first."""
        graph = self.graph
        return [bind_inputs(graph, binding.shapes, binding.values) for binding in self._bindings]

    def network(self) -> BoundNetwork:
        """Return the network in the main set of shapes, a copy that an import may change."""
        return self.bound(self.main)

    def bound(self, binding: Binding, *, keep_unresolved: bool = True) -> BoundNetwork:
        """Return the network with other sizes."""
        return bind_model(self._model(), binding, keep_unresolved=keep_unresolved)


def _import_widest(file: _File, shapes: tuple[OpenShape, ...]) -> tuple[OpenModule, tuple[OpenShape, ...]]:
    """Import the network with all dimensions open; if that fails, with all but one that is no batch and does not vary."""
    try:
        return _import(file, shapes)
    except InvalidModelError:
        for name, size in _steady_sizes(file, shapes).items():
            with suppress(InvalidModelError):
                return _import(file, _with_size(shapes, name, size))
        raise


def _refuse_unfit(file: _File, taken: OpenShapes) -> None:
    """Refuse a network whose code for all sizes would not take all of those that were bound."""
    for specs in file.inputs:
        sizes = taken.sizes_of([spec.shape for spec in specs])
        for dimension in taken.dimensions:
            if sizes[dimension.name] % dimension.multiple:
                raise InvalidModelError(
                    f"it would take multiples of {dimension.multiple} for {clean(dimension.name, 60)} alone, and not "
                    f"{sizes[dimension.name]}",
                    code="unsupported-operator",
                )


def _sizes(file: _File, shapes: tuple[OpenShape, ...]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of each open dimension in all sets of shapes."""
    return {
        dimension.name: tuple(specs[number].shape[axis] for specs in file.inputs)
        for number, shape in enumerate(shapes)
        for axis, dimension in enumerate(shape)
        if isinstance(dimension, OpenDimension)
    }


def _steady_sizes(file: _File, shapes: tuple[OpenShape, ...]) -> dict[str, int]:
    """Return the sizes of the open dimensions that are no batch and the same in all sets of shapes; none if no other is open."""
    sizes, batches = _sizes(file, shapes), _batches(shapes)
    steady = {
        name: values[0]
        for name, values in sizes.items()
        if name not in batches and values.count(values[0]) == len(values)
    }
    return steady if len(sizes) > 1 else {}


def _batches(shapes: tuple[OpenShape, ...]) -> set[str]:
    """Return the names of open first dimensions: no network needs a batch to be of one size, or a multiple."""
    return {shape[0].name for shape in shapes if shape and isinstance(shape[0], OpenDimension)}


def _with_size(shapes: tuple[OpenShape, ...], name: str, size: int) -> tuple[OpenShape, ...]:
    """Return shapes with a size for a dimension."""
    return with_dimensions(shapes, lambda dimension: size if dimension.name == name else dimension)


def _with_multiple(shapes: tuple[OpenShape, ...], names: set[str], multiple: int) -> tuple[OpenShape, ...]:
    """Return shapes whose dimensions of these names are multiples of a number."""
    return with_dimensions(
        shapes,
        lambda dimension: replace(dimension, multiple=multiple) if dimension.name in names else dimension,
    )


def _import(file: _File, shapes: tuple[OpenShape, ...]) -> tuple[OpenModule, tuple[OpenShape, ...]]:
    """Import the network with the smallest multiple that it takes; with one size of all batches if they must be equal."""
    sizes = _sizes(file, shapes)
    failure: InvalidModelError | None = None
    for multiple, one_batch in product(_MULTIPLES, (False, True)):
        tried = _with_one_batch(shapes, sizes) if one_batch else shapes
        tried = _with_multiple(tried, sizes.keys() - _batches(tried), multiple)
        try:
            opened = import_open(file.network(), tried)
            return _with_fewest_multiples(file, opened, tried)
        except InvalidModelError as error:
            is_final = not isinstance(error.__cause__, NoOneShapeError)
            failure = error if is_final else failure or error
            if is_final:
                break
    assert failure is not None
    raise failure


def _with_fewest_multiples(
    file: _File, opened: OpenModule, shapes: tuple[OpenShape, ...]
) -> tuple[OpenModule, tuple[OpenShape, ...]]:
    """Return the network with any size for the dimensions of inputs that need no multiples: those of a text beside an image."""
    by_input = [
        {size.name for size in shape if isinstance(size, OpenDimension) and size.multiple > 1}
        for shape in shapes
    ]
    for names in by_input if len([names for names in by_input if names]) > 1 else []:
        tried = _with_multiple(shapes, names, 1)
        with suppress(InvalidModelError):
            opened, shapes = import_open(file.network(), tried), tried
    return opened, shapes


def _with_sizes_of_inputs(
    mod: tvm.IRModule, shapes: tuple[OpenShape, ...], taken: OpenShapes
) -> tvm.IRModule:
    """Return a module whose ``main`` reads the sizes, which it was given, from its inputs, and refuses those that do not fit."""
    main = mod["main"]
    sizes, *tensors = main.params
    dimensions = open_dimensions(shapes)
    variables = {size.name: tirx.Var(f"s{number}", "int64") for number, size in enumerate(dimensions)}
    inputs = [
        relax.Var(
            f"x{number}",
            relax.TensorType(
                [variables[size.name] if isinstance(size, OpenDimension) else size for size in shape],
                tensor_dtype(tensor),
            ),
        )
        for number, (tensor, shape) in enumerate(zip(tensors, shapes, strict=True))
    ]
    counts = [tirx.floordiv(variables[size.name], size.multiple) for size in dimensions]
    # TVM's VMShapeLower computes no expression that only the value of a cast has: it needs a binding of its own.
    computed = relax.Var("counts", relax.ShapeType(counts))
    casts: list[relax.Binding] = [relax.VarBinding(computed, relax.ShapeExpr(counts))]
    casts += [relax.MatchCast(sizes, computed, sizes.ty)]
    casts += [relax.MatchCast(old, new, old.ty) for old, new in zip(tensors, inputs, strict=True)]
    casts += _checks(taken, variables)
    body = relax.SeqExpr([relax.BindingBlock(casts), *main.body.blocks], main.body.body)
    result = tvm.IRModule(dict(mod.functions.items()), attrs=mod.attrs)
    result.update_func(
        result.get_global_var("main"),
        relax.Function(inputs, body, main.ret_ty, main.is_pure, main.attrs),
    )
    return relax.transform.Normalize()(result)


def _checks(taken: OpenShapes, variables: Mapping[str, tirx.Var]) -> list[relax.Binding]:
    """Return bindings that fail unless the sizes are multiples, within limits, and what the conditions say."""
    zero = tirx.const(0, "int64")
    excesses = []
    for size in taken.dimensions:
        variable = variables[size.name]
        least, most = taken.minima.get(size.name), taken.maxima.get(size.name)
        excesses.append(tirx.floormod(variable, size.multiple) if size.multiple > 1 else zero)
        excesses.append(zero if least is None else tirx.max(least - variable, zero))
        excesses.append(zero if most is None else tirx.max(variable - most, zero))
    for condition in taken.conditions:
        size, of = (size_of_plain(condition[key], variables) for key in ("size", "of"))
        if condition["kind"] == "multiple":
            excesses.append(tirx.floormod(size, of))
        elif condition["kind"] == "least":
            excesses.append(tirx.max(of - size, zero))
        else:
            excesses.append(size - of)
    excesses = [excess for excess in excesses if excess is not zero]
    if not excesses:
        return []
    wanted = relax.ShapeType([zero] * len(excesses))
    computed = relax.Var("excesses", relax.ShapeType(excesses))
    return [
        relax.VarBinding(computed, relax.ShapeExpr(excesses)),
        relax.MatchCast(relax.Var("fits", wanted), computed, wanted),
    ]


def _with_one_batch(
    shapes: tuple[OpenShape, ...], sizes: Mapping[str, tuple[int, ...]]
) -> tuple[OpenShape, ...]:
    """Return shapes whose first dimensions, where they are open, are one. Exporters give each input its own name for it.

    A first dimension of another size, the same in all sets of shapes, keeps that: a time step that all samples share.
    """
    batches = [shape[0] for shape in shapes if shape and isinstance(shape[0], OpenDimension)]
    if not batches:
        return shapes
    batch = max(batches, key=lambda dimension: sizes[dimension.name])
    kept = {
        other: sizes[other.name][0] if len({*sizes[other.name]}) == 1 else batch
        for other in batches
        if sizes[other.name] != sizes[batch.name]
    }
    return with_dimensions(shapes, lambda size: kept.get(size, batch) if size in batches else size)


def _refuse_branches_by_size(file: _File, shapes: tuple[OpenShape, ...]) -> None:
    """Refuse a network whose branches or loops are resolved otherwise for other sizes."""
    if not has_control_flow(file.graph):
        return
    network = file.network()
    larger = {
        spec.name: tuple(
            2 * size if isinstance(dimension, OpenDimension) else size
            for size, dimension in zip(spec.shape, shape, strict=True)
        )
        for spec, shape in zip(network.inputs, shapes, strict=True)
    }
    other = file.bound(replace(file.main, shapes=larger), keep_unresolved=False)
    if _nodes_of(network) != _nodes_of(other):
        raise InvalidModelError(
            "its branches or loops depend on the sizes of its inputs", code="unsupported-operator"
        )


def _nodes_of(network: BoundNetwork) -> list[bytes]:
    graph = network.model.graph
    return [part.SerializeToString(deterministic=True) for part in (*graph.node, *graph.initializer)]
