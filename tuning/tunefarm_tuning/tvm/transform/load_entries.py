"""Read and prepare a network in several sets of shapes, as the entries of one module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tvm

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.transform.merge_entries import merge_entries
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.tvm.transform.weights.storage import Storage, StoredKernel
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.runtime_part import RuntimePart


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEntries:
    """A network in several sets of shapes.

    Attributes:
        module: Its entries, `relax_graph.entry_names`, are in the order of the bindings.
        storage: How weights are stored; the numbers are those of the first entry, since all share their weights.
        warnings: Sentences for people, each once.
        parts: The ONNX models of the parts that ONNX Runtime runs; none of a network of several sets of shapes.
    """

    module: tvm.IRModule
    storage: Storage
    warnings: tuple[str, ...]
    parts: tuple[bytes, ...] = ()


def load_entries(
    path: Path | str,
    bindings: Sequence[Binding],
    target: Target,
    precision: Precision = Precision.AS_MODEL,
    parts: Sequence[RuntimePart] = (),
) -> LoadedEntries:
    """Read and prepare a network once for each binding; see `load_relax`. A network of one binding keeps its names.

    ONNX Runtime may run `parts` of a network of one binding.

    Raises:
        InvalidModelError: If the file cannot be imported after all.
    """
    if len(bindings) == 1:
        loaded = load_relax(path, bindings[0], target, precision, parts=parts)
        return LoadedEntries(
            module=loaded.module, storage=loaded.storage, warnings=loaded.warnings, parts=loaded.parts
        )
    storages: list[Storage] = []
    warnings: dict[str, None] = {}

    def modules() -> Iterator[tvm.IRModule]:
        for binding in bindings:
            loaded = load_relax(path, binding, target, precision)
            storages.append(loaded.storage)
            warnings.update(dict.fromkeys(loaded.warnings))
            yield loaded.module

    merged = merge_entries(modules())
    return LoadedEntries(
        module=merged.module,
        storage=replace(storages[0], kernels=_renamed(storages, merged.kernel_names)),
        warnings=tuple(warnings),
    )


def _renamed(storages: Sequence[Storage], names: Sequence[Mapping[str, str]]) -> dict[str, StoredKernel]:
    return {
        renamed[name]: kernel
        for storage, renamed in zip(storages, names, strict=True)
        for name, kernel in storage.kernels.items()
    }
