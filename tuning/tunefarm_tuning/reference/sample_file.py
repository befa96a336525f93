"""Reads a file of samples; only child processes do so (`samples_child`), since the file is a stranger's.

Nothing of an array is unpacked before its name, size, dtype and shape are known to fit. Pickled objects are never loaded.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean, clean_message
from tunefarm_tuning.reference.samples import samples_too_large
from tunefarm_tuning.workload.task import TensorSpec

_SUFFIX = ".npy"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1
_SHOWN = 5
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Samples:
    """The arrays of a file, in the order of the inputs.

    Attributes:
        fits: Index of the set of shapes that they fit.
        stacked: By input: whether its array has a dimension in front for the sample sets; others are the same in all sets.
        sets: Number of sample sets.
    """

    fits: int
    arrays: tuple[NDArray[Any], ...]
    stacked: tuple[bool, ...]
    sets: int

    def set_of(self, index: int) -> list[NDArray[Any]]:
        """Return one array per input."""
        return [
            array[index] if stacked else array
            for array, stacked in zip(self.arrays, self.stacked, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Header:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data_bytes: int


def read_sample_file(
    path: Path, shapes: Sequence[Sequence[TensorSpec]], limit_bytes: int, *, bound: Sequence[str] = ()
) -> Samples:
    """Read and check a file of samples.

    Args:
        path: The file.
        shapes: The network's inputs in each set of shapes; names and dtypes are the same in all.
        limit_bytes: The most that its arrays may have together, unpacked.
        bound: Names of inputs that are bound to a value, and so are none any more.

    Raises:
        InvalidInputError: As `samples.check_samples`.
    """
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise _damaged("the file", error) from error
    with archive:
        entries = _named(_entries_by_key(archive, limit_bytes), [spec.name for spec in shapes[0]], bound)
        headers = [_checked_header(archive, entries[spec.name], spec) for spec in shapes[0]]
        fits = _fitting(headers, shapes)
        specs = shapes[fits]
        counts = [_count_of(header.shape, spec) for header, spec in zip(headers, specs, strict=True)]
        for header, spec in zip(headers, specs, strict=True):
            _require_whole(header, spec)
        sets = _common_count({spec.name: count for spec, count in zip(specs, counts, strict=True)})
        arrays = tuple(_read(archive, entries[spec.name], spec) for spec in specs)
    stacked = tuple(count is not None for count in counts)
    for spec, array, is_stacked in zip(specs, arrays, stacked, strict=True):
        _require_finite(spec, array, stacked=is_stacked)
    return Samples(fits, arrays, stacked, sets)


def _entries_by_key(archive: zipfile.ZipFile, limit_bytes: int) -> Mapping[str, zipfile.ZipInfo]:
    """Return the zip's arrays by their names, after a look at all names and sizes."""
    entries = archive.infolist()
    if not entries:
        raise InvalidInputError("the file of samples has no arrays", code="empty-samples")
    by_key: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        shown = clean(entry.filename, 80)
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
            raise InvalidInputError(
                f"the entry '{shown}' is encrypted, or compressed in a way that numpy does not write: use "
                "numpy.savez or numpy.savez_compressed",
                code="not-npz",
            )
        if not entry.filename.endswith(_SUFFIX):
            raise InvalidInputError(
                f"the entry '{shown}' of the file is not an array (.npy): write the file with numpy.savez",
                code="not-npz",
            )
        key = entry.filename.removesuffix(_SUFFIX)
        if key in by_key:
            raise InvalidInputError(
                f"the file of samples has two arrays named '{clean(key, 80)}'",
                code="duplicate-sample",
                input=clean(key),
            )
        by_key[key] = entry
    unpacked_bytes = sum(entry.file_size for entry in entries)
    if unpacked_bytes > limit_bytes:
        raise samples_too_large(unpacked_bytes, limit_bytes)
    return by_key


def _named(
    by_key: Mapping[str, zipfile.ZipInfo], names: Sequence[str], bound: Sequence[str]
) -> Mapping[str, zipfile.ZipInfo]:
    """Return the entries by the inputs' names; they may be named by position instead, as numpy.savez(path, a, b) does."""
    positions = [f"arr_{position}" for position in range(len(names))]
    if set(by_key) == set(positions) and not set(positions) & set(names):
        return {name: by_key[position] for name, position in zip(names, positions, strict=True)}
    unknown = [key for key in by_key if key not in set(names)]
    missing = [name for name in names if name not in by_key]
    if unknown and unknown[0] in bound:
        raise InvalidInputError(
            f"the input '{clean(unknown[0], 80)}' is bound to a value, so it takes no samples: leave its array out",
            code="unknown-sample",
            input=clean(unknown[0]),
        )
    if unknown:
        near = get_close_matches(unknown[0], missing or names, n=1)
        hint = f"; did you mean '{clean(near[0], 80)}'?" if near else ""
        raise InvalidInputError(
            f"the file of samples has arrays {_shown(list(by_key))}, but the network has no input "
            f"'{clean(unknown[0], 80)}'; its inputs are {_shown(names)}{hint}",
            code="unknown-sample",
            input=clean(unknown[0]),
        )
    if missing:
        raise InvalidInputError(
            f"the file of samples has no array for the input '{clean(missing[0], 80)}': it has {_shown(list(by_key))}, "
            f"and the network's inputs are {_shown(names)}",
            code="missing-sample",
            input=clean(missing[0]),
        )
    return by_key


def _checked_header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, spec: TensorSpec) -> _Header:
    """Return an array's header; its dtype is the input's."""
    name = clean(spec.name, 80)
    try:
        with archive.open(entry) as member:
            version = npy.read_magic(member)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read_header(member)
            header_bytes = member.tell()
    except _DAMAGE as error:
        raise _damaged(f"the array of input '{name}'", error) from error
    if dtype.hasobject:
        raise InvalidInputError(
            f"the array of input '{name}' holds pickled Python objects, which are never loaded: {_wanted(spec)}",
            code="pickled-samples",
            input=name,
        )
    wanted = numpy_dtype(spec.dtype)
    if _native(dtype, wanted) != wanted:
        raise InvalidInputError(
            f"the array of input '{name}' is {clean(str(dtype), 80)}; {_wanted(spec)}: convert it with "
            f".astype('{spec.dtype}')",
            code="sample-dtype",
            input=name,
            given=clean(str(dtype), 80),
            wanted=spec.dtype,
        )
    return _Header(tuple(shape), dtype, entry.file_size - header_bytes)


def _fitting(headers: Sequence[_Header], shapes: Sequence[Sequence[TensorSpec]]) -> int:
    """Return the index of the set of shapes that the arrays fit; of one set, 0."""
    if len(shapes) == 1:
        return 0
    for number, specs in enumerate(shapes):
        if all(spec.shape in (h.shape, h.shape[1:]) for h, spec in zip(headers, specs, strict=True)):
            return number
    given = ", ".join(
        f"'{clean(spec.name, 40)}' {list(header.shape)[:16]}"
        for header, spec in zip(headers, shapes[0], strict=True)
    )
    wanted = "; ".join(
        ", ".join(f"'{clean(spec.name, 40)}' {list(spec.shape)}" for spec in specs)
        for specs in shapes[:_SHOWN]
    )
    more = f" and {len(shapes) - _SHOWN} more" if len(shapes) > _SHOWN else ""
    raise InvalidInputError(
        f"the arrays have the shapes {clean(given, 400)}; they do not fit any of the network's {len(shapes)} sets of shapes, "
        f"with or without one more dimension in front: {clean(wanted, 600)}{more}",
        code="sample-shape",
        given=[list(header.shape)[:32] for header in headers],
        wanted=[[list(spec.shape) for spec in specs] for specs in shapes[:_SHOWN]],
    )


def _require_whole(header: _Header, spec: TensorSpec) -> None:
    needed = prod(header.shape) * header.dtype.itemsize
    if needed != header.data_bytes:
        raise _damaged(
            f"the array of input '{clean(spec.name, 80)}'",
            f"it has {header.data_bytes} bytes of data where its shape {list(header.shape)} needs {needed}",
        )


def _count_of(shape: tuple[int, ...], spec: TensorSpec) -> int | None:
    """Return how many sample sets an array has; None if it has exactly the input's shape."""
    if shape == spec.shape:
        return None
    name = clean(spec.name, 80)
    if shape[1:] == spec.shape and shape[0] == 0:
        raise InvalidInputError(
            f"the array of input '{name}' is empty: its shape is {list(shape)}",
            code="empty-samples",
            input=name,
        )
    if shape[1:] == spec.shape and shape[0] > 0:
        return shape[0]
    hint = ""
    if len(shape) == len(spec.shape) and spec.shape[:1] == (1,) and shape[1:] == spec.shape[1:]:
        hint = f"; {shape[0]} samples of batch 1 are array[:, None]"
    raise InvalidInputError(
        f"the array of input '{name}' has the shape {clean(str(list(shape)), 200)}; {_wanted(spec)}{hint}",
        code="sample-shape",
        input=name,
        given=list(shape)[:32],
        wanted=list(spec.shape),
    )


def _common_count(counts: Mapping[str, int | None]) -> int:
    """Return the number of sample sets, on which all stacked arrays must agree."""
    numbers = {name: count for name, count in counts.items() if count is not None}
    if len(set(numbers.values())) > 1:
        shown = ", ".join(
            f"'{clean(name, 80)}' has {count}" for name, count in list(numbers.items())[:_SHOWN]
        )
        raise InvalidInputError(
            f"the inputs have different numbers of samples: {shown}", code="sample-count", counts=numbers
        )
    return next(iter(numbers.values()), 1)


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, spec: TensorSpec) -> NDArray[Any]:
    """Return an array whose header was checked, in the input's dtype."""
    try:
        with archive.open(entry) as member:
            array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
            member.read()  # to the end, where the checksum is
    except _DAMAGE as error:
        raise _damaged(f"the array of input '{clean(spec.name, 80)}'", error) from error
    wanted = numpy_dtype(spec.dtype)
    if array.dtype.kind == "V":
        return array.view(wanted)
    if array.dtype.kind == "b":  # a byte that is neither 0 nor 1 is no boolean
        return np.not_equal(array.view(np.uint8), 0)
    return array.astype(wanted, copy=False)


def _require_finite(spec: TensorSpec, array: NDArray[Any], *, stacked: bool) -> None:
    if array.dtype.kind in "biu":
        return
    finite = np.isfinite(array)
    if bool(finite.all()):
        return
    index = [int(i) for i in np.unravel_index(int(np.argmin(finite)), array.shape)]
    where = f"in sample set {index[0]} at {index[1:]}" if stacked else f"at {index}"
    count = int(array.size - np.count_nonzero(finite))
    what = (
        f"an element that is NaN or infinite, {where}"
        if count == 1
        else f"{count} elements that are NaN or infinite; the first is {where}"
    )
    raise InvalidInputError(
        f"the array of input '{clean(spec.name, 80)}' has {what}: samples must be finite numbers",
        code="sample-not-finite",
        input=clean(spec.name),
    )


def _native(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype in this machine's byte order; raw bytes, as numpy stores bfloat16, count as the wanted dtype."""
    if (
        dtype.kind == "V"
        and dtype.fields is None
        and wanted.kind == "V"
        and dtype.itemsize == wanted.itemsize
    ):
        return wanted
    return dtype.newbyteorder("=")


def _wanted(spec: TensorSpec) -> str:
    sizes = ", ".join(str(size) for size in spec.shape)
    return f"wanted is {spec.dtype} [{sizes}], or [N, {sizes}] for N sample sets".replace(", ]", "]")


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{clean(name, 80)}'" for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _damaged(what: str, why: Exception | str) -> InvalidInputError:
    reason = clean_message(why) if isinstance(why, Exception) else why
    return InvalidInputError(f"{what} is damaged: {reason}", code="damaged-samples")
