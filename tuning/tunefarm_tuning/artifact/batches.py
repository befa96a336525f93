"""Runs any number of samples through a model with a fixed batch size. Needs Python 3.11 and numpy.

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
else:  # beside this file, in the zip
    from tunefarm_arrays import (  # type: ignore[import-not-found,no-redef]
        ArtifactInputError,
        listed,
        numpy_dtype,
    )

Specs = Sequence[Mapping[str, Any]]


def run_in_batches(
    run: Callable[[Sequence[Any]], dict[str, NDArray[Any]]], inputs: Specs, outputs: Specs, data: Any
) -> dict[str, NDArray[Any]]:
    """Run a model with a fixed batch size over all samples of `data`; see `TunedModel.batched`."""
    import numpy as np

    size = _batch_size(inputs, outputs)
    parts: dict[str, list[NDArray[Any]]] = {
        spec["name"]: [np.empty((0, *spec["shape"][1:]), numpy_dtype(spec["dtype"]))] for spec in outputs
    }
    for arrays in _batches(inputs, data, size):
        count = len(arrays[0])
        for name, result in run([_filled_up(array, size) for array in arrays]).items():
            parts[name].append(result[:count])
    return {name: np.concatenate(batches) for name, batches in parts.items()}


def _batch_size(inputs: Specs, outputs: Specs) -> int:
    specs = [*inputs, *outputs]
    sizes = {spec["shape"][0] if spec["shape"] else None for spec in specs}
    size = sizes.pop() if len(sizes) == 1 else None
    if not size or not inputs:
        raise ArtifactInputError(
            f"the model cannot be run in batches: not all of its inputs and outputs have the same first axis: {listed(specs)}"
        )
    return int(size)


def _batches(inputs: Specs, data: Any, size: int) -> Iterator[list[NDArray[Any]]]:
    """Return the arrays of each batch, in the order of the inputs; the last batch may have fewer samples."""
    import numpy as np

    if isinstance(data, Mapping):
        return _slices(inputs, _in_order(inputs, data), size)
    if isinstance(data, np.ndarray) or hasattr(data, "__dlpack__") or hasattr(data, "__array__"):
        if len(inputs) != 1:
            raise ArtifactInputError(
                f"give an array for each of the model's inputs, by name: {listed(inputs)}"
            )
        return _slices(inputs, [data], size)
    if not isinstance(data, Iterable):
        raise ArtifactInputError(f"{type(data).__name__} is neither an array nor an iterable of samples")
    return _stacks(inputs, data, size)


def _in_order(inputs: Specs, by_name: Mapping[str, Any]) -> list[Any]:
    names = [spec["name"] for spec in inputs]
    if by_name.keys() != set(names):
        raise ArtifactInputError(
            f"the inputs given are {', '.join(map(repr, by_name)) or 'none'}, but the model has {listed(inputs)}"
        )
    return [by_name[name] for name in names]


def _slices(inputs: Specs, values: Sequence[Any], size: int) -> Iterator[list[NDArray[Any]]]:
    arrays = [_array(spec, array) for spec, array in zip(inputs, values, strict=True)]
    for spec, array in zip(inputs, arrays, strict=True):
        wanted = list(spec["shape"][1:])
        if not array.ndim or list(array.shape[1:]) != wanted:
            raise ArtifactInputError(
                f"input {spec['name']!r} has shape {list(array.shape)}, but a batch of samples {wanted} is "
                f"required: [N, {', '.join(map(str, wanted))}]"
            )
    if len({len(array) for array in arrays}) > 1:
        counts = ", ".join(f"{len(a)} of {s['name']!r}" for s, a in zip(inputs, arrays, strict=True))
        raise ArtifactInputError(f"the inputs have different numbers of samples: {counts}")
    for start in range(0, len(arrays[0]), size):
        yield [array[start : start + size] for array in arrays]


def _stacks(inputs: Specs, samples: Iterable[Any], size: int) -> Iterator[list[NDArray[Any]]]:
    import numpy as np

    remaining = iter(samples)
    while taken := list(islice(remaining, size)):
        rows = [_of_sample(inputs, sample) for sample in taken]
        yield [np.stack([_checked(spec, row[i]) for row in rows]) for i, spec in enumerate(inputs)]


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


def _checked(spec: Mapping[str, Any], value: Any) -> NDArray[Any]:
    array = _array(spec, value)
    wanted = list(spec["shape"][1:])
    if str(array.dtype.newbyteorder("=")) != spec["dtype"] or list(array.shape) != wanted:
        raise ArtifactInputError(
            f"a sample of input {spec['name']!r} is {array.dtype} {list(array.shape)}, but {spec['dtype']} "
            f"{wanted} is required"
        )
    return array


def _array(spec: Mapping[str, Any], value: Any) -> NDArray[Any]:
    import numpy as np

    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ArtifactInputError(f"input {spec['name']!r} is not an array: {error}") from error


def _filled_up(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Pad a batch with copies of its last sample: unlike zeros, they cause no error that the batch does not cause itself."""
    import numpy as np

    lacking = size - len(array)
    return np.concatenate([array, np.repeat(array[-1:], lacking, axis=0)]) if lacking else array
