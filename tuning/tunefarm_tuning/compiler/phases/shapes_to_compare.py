"""In which shapes the code for all sizes is compared: those near the main ones, odd ones, and those that meet its conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from tunefarm_tuning.artifact.sizes import SizeChecks, names_in, value_of
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.open_shape import OpenShapes

_ODD = (3, 5, 7, 11, 13)
_WIDER_THAN_TILES, _MOST_GROWTH = 67, 16
"""A size beyond the widest tile of the default schedules, and how many times the elements of the main sizes are compared at most."""
_REACHES = (64, 16, 5, 3)
"""How far from sizes to look for others that meet all conditions, by the number of dimensions."""

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes by the inputs' names."""


def shapes_to_compare(model: Model, open_shapes: OpenShapes) -> list[dict[str, tuple[int, ...]]]:
    """Return shapes that are taken, by the inputs' names: the main set, then larger and smaller ones, odd ones, the smallest.

    Raises:
        InvalidModelError: unsupported-operator: there are none beside the main set.
    """
    main = open_shapes.sizes_of([spec.shape for spec in model.inputs])
    multiples = {dimension.name: dimension.multiple for dimension in open_shapes.dimensions}
    choices = (
        {name: size + multiples[name] for name, size in main.items()},
        {name: size * 3 // 4 for name, size in main.items()},
        {name: _ODD[number % len(_ODD)] * multiples[name] for number, name in enumerate(main)},
        dict.fromkeys(main, 1),
    )
    near = (_nearest(model, open_shapes, choice) for choice in choices)
    listed: list[dict[str, tuple[int, ...]]] = []
    for shapes in (_shapes(model, open_shapes, main), *near):
        if shapes is not None and shapes not in listed:
            listed.append(shapes)
    if len(listed) < 2:
        raise InvalidModelError(
            "no other shapes near those that were given meet its conditions, so its code could not be compared",
            code="unsupported-operator",
        )
    return listed


def shapes_beyond_tiles(model: Model, open_shapes: OpenShapes) -> dict[str, tuple[int, ...]] | None:
    """Return shapes with the last sizes beyond a tile, as far as the work allows: code that writes behind a tile does it nowhere else."""
    main = open_shapes.sizes_of([spec.shape for spec in model.inputs])
    multiples = {dimension.name: dimension.multiple for dimension in open_shapes.dimensions}
    larger, left = dict(main), float(_MOST_GROWTH)
    for name, size in reversed(list(main.items())):
        growth = _WIDER_THAN_TILES / size
        if 1 < growth <= left:
            larger[name] = -(-_WIDER_THAN_TILES // multiples[name]) * multiples[name]
            left /= growth
    return None if larger == main else _nearest(model, open_shapes, larger)


def _nearest(
    model: Model, open_shapes: OpenShapes, sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes nearest to sizes of the dimensions that meet all conditions; None if there are none near."""
    sums = _sums(open_shapes)
    free = [name for name in sizes if name not in sums]
    reach = _REACHES[min(max(len(free), 1), len(_REACHES)) - 1]
    steps = range(-reach, reach + 1)
    choices = sorted(
        product(steps, repeat=len(free)) if len(free) <= len(_REACHES) else [(0,) * len(free)],
        key=lambda choice: sum(map(abs, choice)),
    )
    multiples = {dimension.name: dimension.multiple for dimension in open_shapes.dimensions}
    accepts = SizeChecks((*open_shapes.conditions, *open_shapes.usual))
    for choice in choices:
        tried = {
            name: open_shapes.fitting(name, sizes[name] + step * multiples[name])
            for name, step in zip(free, choice, strict=True)
        }
        tried |= {name: value_of(of, tried) for name, of in sums.items()}
        fits = all(open_shapes.fitting(name, max(tried[name], 1)) == tried[name] for name in sums)
        if fits and not accepts.why_not(tried):
            return _shapes(model, open_shapes, tried)
    return None


def _sums(open_shapes: OpenShapes) -> dict[str, Any]:
    """Return what dimensions are equal to that are sums of others, which are none themselves."""
    equal = [
        condition
        for condition in (*open_shapes.conditions, *open_shapes.usual)
        if condition["kind"] == "equal" and isinstance(condition["size"], str)
    ]
    sums: dict[str, Any] = {}
    for condition in equal:
        size, names = condition["size"], names_in(condition["of"])
        used = set().union(*map(names_in, sums.values()))
        if size not in sums and size not in used | names and not names & sums.keys():
            sums[size] = condition["of"]
    return sums


def _shapes(model: Model, open_shapes: OpenShapes, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    return dict(zip([spec.name for spec in model.inputs], open_shapes.bound(sizes), strict=True))


def without_refused(
    open_shapes: OpenShapes,
    model: Model,
    refused: Sequence[Shapes],
    compared: Sequence[Shapes],
) -> OpenShapes:
    """Return the shapes that are taken without those below the smallest that were compared.

    Raises:
        InvalidModelError: If ONNX Runtime refused other shapes than those.
    """

    def sizes_of(shapes: Shapes) -> dict[str, int]:
        return open_shapes.sizes_of([shapes[spec.name] for spec in model.inputs])

    ran = [sizes_of(shapes) for shapes in compared]
    minima = {name: min(sizes[name] for sizes in ran) for name in ran[0]}
    for shapes in refused:
        if all(size >= minima[name] for name, size in sizes_of(shapes).items()):
            raise InvalidModelError(
                f"ONNX Runtime does not run the shapes {shapes_in_words(shapes)}, which the code would accept",
                code="reference-failed",
            )
    return replace(open_shapes, minima={**open_shapes.minima, **minima})


def shapes_in_words(shapes: Shapes) -> str:
    """Return shapes for a message: the names are a stranger's."""
    return ", ".join(f"{clean(name, 60)} {list(shape)}" for name, shape in shapes.items())
