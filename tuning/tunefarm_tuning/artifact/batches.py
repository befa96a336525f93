"""Runs any number of samples through a model of fixed batch sizes. Needs Python 3.11 and numpy.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

if __package__:
    from tunefarm_tuning.artifact.arrays import ArtifactInputError, listed, numpy_dtype
    from tunefarm_tuning.artifact.specialisations import ShapeTable, Specialisation
else:  # beside this file, in the zip
    from tunefarm_arrays import (  # type: ignore[import-not-found,no-redef]
        ArtifactInputError,
        listed,
        numpy_dtype,
    )
    from tunefarm_specialisations import (  # type: ignore[import-not-found,no-redef]
        ShapeTable,
        Specialisation,
    )

Specs = Sequence[Mapping[str, Any]]
Run = Callable[[Specialisation, Sequence[Any]], "dict[str, NDArray[Any]]"]
"""Runs a specialisation on a full batch."""


def run_in_batches(run: Run, table: ShapeTable, data: Any) -> dict[str, NDArray[Any]]:
    """Run a model over all samples of `data`, in the batches that take the least time; see `TunedModel.batched`."""
    import numpy as np

    inputs = table.main.inputs
    if any(None in spec["shape"] for spec in table.main.outputs):
        raise ArtifactInputError(
            f"the model cannot be run in batches: the size of an output depends on values: {listed(table.main.outputs)}"
        )
    if not table.sample_shapes:
        specs = [*inputs, *table.main.outputs]
        raise ArtifactInputError(
            f"the model cannot be run in batches: not all of its inputs and outputs have the same first axis: {listed(specs)}"
        )
    plan: BatchPlan | None = None
    parts: dict[str, list[NDArray[Any]]] = {}
    for arrays in _pieces(table, data):
        plan = plan or BatchPlan(_fitting(table, arrays))
        start, count = 0, len(arrays[0])
        for item in plan.batches(count):
            size = item.batch or 1
            rows = [filled_up(array[start : start + size], size) for array in arrays]
            taken = min(size, count - start)
            for name, result in run(item, rows).items():
                parts.setdefault(name, []).append(result[:taken])
            start += taken
    if not parts:
        outputs = (plan.largest if plan else table.main).outputs
        return {
            spec["name"]: np.empty((0, *spec["shape"][1:]), numpy_dtype(spec["dtype"])) for spec in outputs
        }
    return {name: np.concatenate(batches) for name, batches in parts.items()}


class BatchPlan:
    """Divides samples into batches.

    Args:
        items: Specialisations of one kind of samples, the smallest batch first.
    """

    def __init__(self, items: Sequence[Specialisation]) -> None:
        self._items = items
        self.largest = items[-1]
        timed = all(item.latency_sec for item in items)
        # Without latencies a sample costs the same in every batch, and a batch a little more than its samples.
        self._costs = [(item.latency_sec or 0.0) if timed else (item.batch or 1) + 0.5 for item in items]
        self._cheapest: list[tuple[float, int]] = [(0.0, -1)]

    def batches(self, count: int) -> list[Specialisation]:
        """Return the batches of `count` samples, in order; the last may have more places than samples remain."""
        sizes = [item.batch or 1 for item in self._items]
        bulk = min(range(len(sizes)), key=lambda i: self._costs[i] / sizes[i])
        # Far more samples than the largest batch has: the bulk of them runs at the least time per sample.
        num_bulk = max(0, (count - 4 * sizes[-1]) // sizes[bulk])
        chosen = [self._items[bulk]] * num_bulk
        rest = count - num_bulk * sizes[bulk]
        while len(self._cheapest) <= rest:
            number = len(self._cheapest)
            self._cheapest.append(
                min(
                    (self._cheapest[max(0, number - size)][0] + cost, i)
                    for i, (size, cost) in enumerate(zip(sizes, self._costs, strict=True))
                )
            )
        picks = []
        while rest > 0:
            picks.append(self._cheapest[rest][1])
            rest -= sizes[picks[-1]]
        # The batch that has places left comes last.
        return chosen + [self._items[i] for i in sorted(picks, reverse=True)]


def _fitting(table: ShapeTable, arrays: Sequence[NDArray[Any]]) -> list[Specialisation]:
    shapes = tuple(array.shape[1:] for array in arrays)
    fitting = table.of_samples(shapes)
    if not fitting:
        names = [spec["name"] for spec in table.main.inputs]
        given = ", ".join(f"{name!r} {list(shape)}" for name, shape in zip(names, shapes, strict=True))
        listed_shapes = "; ".join(
            ", ".join(f"{name!r} {list(shape)}" for name, shape in zip(names, sample, strict=True))
            for sample in table.sample_shapes[:8]
        )
        raise ArtifactInputError(
            f"no code in this artifact is for samples of the shape {given}; a batch of samples of one of these shapes is "
            f"required: {listed_shapes}"
        )
    return fitting


def _pieces(table: ShapeTable, data: Any) -> Iterator[list[NDArray[Any]]]:
    """Return arrays of samples, in the order of the inputs: all at once, or of an iterable some at a time."""
    import numpy as np

    inputs = table.main.inputs
    if isinstance(data, Mapping):
        return iter([_whole(table, _in_order(inputs, data))])
    if isinstance(data, np.ndarray) or hasattr(data, "__dlpack__") or hasattr(data, "__array__"):
        if len(inputs) != 1:
            raise ArtifactInputError(
                f"give an array for each of the model's inputs, by name: {listed(inputs)}"
            )
        return iter([_whole(table, [data])])
    if not isinstance(data, Iterable):
        raise ArtifactInputError(f"{type(data).__name__} is neither an array nor an iterable of samples")
    return _stacks(table, data)


def _in_order(inputs: Specs, by_name: Mapping[str, Any]) -> list[Any]:
    names = [spec["name"] for spec in inputs]
    if by_name.keys() != set(names):
        raise ArtifactInputError(
            f"the inputs given are {', '.join(map(repr, by_name)) or 'none'}, but the model has {listed(inputs)}"
        )
    return [by_name[name] for name in names]


def _whole(table: ShapeTable, values: Sequence[Any]) -> list[NDArray[Any]]:
    inputs = table.main.inputs
    arrays = [_array(spec, array) for spec, array in zip(inputs, values, strict=True)]
    known = table.sample_shapes
    for position, (spec, array) in enumerate(zip(inputs, arrays, strict=True)):
        wanted = list(known[0][position])
        is_wrong = len(known) == 1 and list(array.shape[1:]) != wanted
        if not array.ndim or is_wrong:
            raise ArtifactInputError(
                f"input {spec['name']!r} has shape {list(array.shape)}, but a batch of samples {wanted} is "
                f"required: [N, {', '.join(map(str, wanted))}]"
            )
    if len({len(array) for array in arrays}) > 1:
        counts = ", ".join(f"{len(a)} of {s['name']!r}" for s, a in zip(inputs, arrays, strict=True))
        raise ArtifactInputError(f"the inputs have different numbers of samples: {counts}")
    return arrays


def _stacks(table: ShapeTable, samples: Iterable[Any]) -> Iterator[list[NDArray[Any]]]:
    import numpy as np

    inputs = table.main.inputs
    most = max(item.batch or 1 for item in table.specialisations)
    remaining = iter(samples)
    shapes = table.sample_shapes[0] if len(table.sample_shapes) == 1 else None
    while taken := list(islice(remaining, most)):
        rows = [_of_sample(inputs, sample) for sample in taken]
        shapes = shapes or tuple(_array(spec, rows[0][i]).shape for i, spec in enumerate(inputs))
        yield [np.stack([_checked(spec, row[i], shapes[i]) for row in rows]) for i, spec in enumerate(inputs)]


def _of_sample(inputs: Specs, sample: Any) -> Sequence[Any]:
    if isinstance(sample, Mapping):
        return _in_order(inputs, sample)
    if len(inputs) == 1:
        return [sample]
    if not isinstance(sample, tuple | list) or len(sample) != len(inputs):
        raise ArtifactInputError(
            f"a sample is a mapping by name, or a tuple, of the model's {len(inputs)} inputs: {listed(inputs)}"
        )
    return sample


def _checked(spec: Mapping[str, Any], value: Any, wanted: tuple[int, ...]) -> NDArray[Any]:
    array = _array(spec, value)
    if str(array.dtype.newbyteorder("=")) != spec["dtype"] or array.shape != wanted:
        raise ArtifactInputError(
            f"a sample of input {spec['name']!r} is {array.dtype} {list(array.shape)}, but {spec['dtype']} "
            f"{list(wanted)} is required"
        )
    return array


def _array(spec: Mapping[str, Any], value: Any) -> NDArray[Any]:
    import numpy as np

    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ArtifactInputError(f"input {spec['name']!r} is not an array: {error}") from error


def filled_up(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Pad a batch with copies of its last sample: unlike zeros, they cause no error that the batch does not cause itself."""
    import numpy as np

    lacking = size - len(array)
    return np.concatenate([array, np.repeat(array[-1:], lacking, axis=0)]) if lacking else array
