"""Child process of `compiler.session`: holds one prepared network and builds libraries of it.

A fresh child has to `load` first. `build_kernel` builds each tuned kernel apart, so that a crash of the compiler is that kernel's.

Handlers:

- `load`: ``path``, ``bindings``, ``weights`` (one for each), ``target``, ``precision``, ``parts`` (that ONNX Runtime runs),
  ``part_files`` (where their ONNX models go), ``objects`` (folder of compiled kernels), ``libraries`` (TVM's names) -> ``entries``: name, weight, names of the kernels; ``kernels``: name, workload key, weight,
  ``not_tunable``, ``args``, ``rounding``; ``alternatives``: workload key, ``flops`` of a call of that kernel, algorithm, library, tuned kernel, args of the ``fixed``
  kernels, workload keys of the ``neighbours``;
  ``cpu_features``, ``storage``, ``warnings``.
- `build_kernel`: ``name``, ``path`` (a fresh one), ``tuned``: null for the untuned kernel, else ``config`` and ``space_key`` of the
  record; ``default_schedules``: whether an untuned kernel gets one; ``packs``: whether the library can pack arguments -> null.
- `build_ahead`: ``kernels``: lists of ``name``, ``tuned`` and ``packs``, as in `build_kernel` -> null. Compiles what `build_kernel` will ask for, on
  all cores; what fails is left to it.
- `load_other_shapes`: {} -> `OpenShapes`.
- `build_model`: ``path`` (a fresh one), ``tuned``: by kernel name, as in `build_kernel`; ``choices``: algorithms by the workload key
  of the kernel that they replace; ``default_schedules``; ``untuned_entries``: names; ``other_shapes``: whether to add an
  entry for all sizes -> ``size_bytes``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm

from tunefarm_tuning.artifact.machine_check import KNOWN_CPU_FEATURES
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError, InvariantError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean, clean_message
from tunefarm_tuning.process import Handler, Handlers
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.relax_graph import entry_names
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory, with_deep_stack
from tunefarm_tuning.tvm.base.target import code_features
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel, build_model, compile_ahead
from tunefarm_tuning.tvm.codegen.kept_schedules import keep_default_schedules, kept_schedule
from tunefarm_tuning.tvm.codegen.kernel_objects import KernelObjects
from tunefarm_tuning.tvm.codegen.onednn import why_no_calls
from tunefarm_tuning.tvm.codegen.other_shapes import with_other_shapes
from tunefarm_tuning.tvm.codegen.scheduled_build import packed_default
from tunefarm_tuning.tvm.kernels.weight_packing import (
    PackedKernel,
    kernel_calls,
    split_off_packing,
)
from tunefarm_tuning.tvm.tasks.alternatives import Alternative, find_alternatives, put_alternatives_in
from tunefarm_tuning.tvm.tasks.apply_record import apply_recorded
from tunefarm_tuning.tvm.tasks.extract import Kernel, kernel_args, primfunc_workloads, rounding_of
from tunefarm_tuning.tvm.tasks.library_alternatives import find_library_alternatives
from tunefarm_tuning.tvm.tasks.neighbours import neighbours
from tunefarm_tuning.tvm.transform.load_entries import load_entries
from tunefarm_tuning.tvm.transform.load_open import OpenNetwork, load_open
from tunefarm_tuning.tvm.transform.merge_entries import with_own_kernels
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.runtime_part import RuntimePart


@dataclass(slots=True)
class _Loaded:
    module: tvm.IRModule
    target: Target
    kernels: dict[str, Kernel]
    """The kernels of the module, then the tuned kernels of its alternatives, by name."""
    alternatives: list[Alternative]
    fixed: dict[str, tvm.tirx.PrimFunc]
    """The scheduled kernels of the alternatives, by name."""
    objects: KernelObjects
    source: Callable[[], OpenNetwork]
    """Prepares the network for all sizes."""
    for_all_sizes: OpenNetwork | None = None
    scheduled: dict[tuple[str, str], PackedKernel] = field(default_factory=dict)
    """Scheduled kernels by workload key and config key: the model is built of the functions that were checked."""


_loaded: _Loaded | None = None
# One network per child: the parent starts a child per compile.


def load(params: dict[str, Any]) -> dict[str, Any]:
    """Read and prepare a network."""
    global _loaded
    target = Target.from_json(params["target"])
    bindings = [Binding.from_json(binding) for binding in params["bindings"]]
    precision = Precision(params["precision"])
    keep_default_schedules(Path(params["objects"]))
    parts = [RuntimePart.from_json(part) for part in params["parts"]]
    model = load_entries(params["path"], bindings, target, precision, parts)
    weights = params["weights"]
    kernels = primfunc_workloads(model.module, weights)
    alternatives = find_alternatives(model.module, target, model.storage.kernels, weights, kernels)
    no_calls = why_no_calls(target) if "dnnl" in params["libraries"] else ""
    if "dnnl" in params["libraries"] and not no_calls:
        alternatives += find_library_alternatives(model.module, target, model.storage.kernels, weights)
    by_name = {
        kernel.name: kernel for kernel in (*kernels, *(alternative.tuned for alternative in alternatives))
    }
    fixed = {name: func for alternative in alternatives for name, func in alternative.fixed.items()}
    neighbours_of = neighbours(model.module, kernels)
    for file, part in zip(params["part_files"], model.parts, strict=True):
        _write(Path(file), part)
    _loaded = _Loaded(
        model.module,
        target,
        by_name,
        alternatives,
        fixed,
        objects=KernelObjects(Path(params["objects"])),
        source=lambda: load_open(params["path"], bindings, target, precision),
    )
    return {
        "entries": [
            {
                "name": entry,
                "weight": weight,
                "kernels": sorted({name for name, _ in kernel_calls(model.module[entry].body)}),
            }
            for entry, weight in zip(entry_names(model.module), weights, strict=True)
        ],
        "kernels": [_describe(kernel) for kernel in kernels],
        "alternatives": [
            {
                "workload_key": alternative.workload_key,
                "algorithm": alternative.algorithm,
                "library": alternative.library,
                "neighbours": neighbours_of.get(alternative.workload_key, []),
                "flops": alternative.direct_flops,
                "kernel": _describe(alternative.tuned, alternative.tuned.module),
                "fixed": {
                    name: [spec.to_json() for spec in kernel_args(tvm.IRModule({"main": func}))]
                    for name, func in alternative.fixed.items()
                },
            }
            for alternative in alternatives
        ],
        "cpu_features": sorted(code_features(target) & KNOWN_CPU_FEATURES.keys()),
        "llvm": str(tvm.get_global_func("target.llvm_version_major")()),
        "storage": model.storage.to_json(),
        "warnings": [*model.warnings, *([no_calls] if no_calls else [])],
    }


def _write(path: Path, part: bytes) -> None:
    """Write a part, unless a child before this one has; the parts of a network are always the same."""
    if not path.exists():
        new = path.with_suffix(".new")
        new.write_bytes(part)
        new.replace(path)


def _describe(kernel: Kernel, timed: tvm.IRModule | None = None) -> dict[str, Any]:
    """Return what the parent knows of a kernel; its arguments only if it is a task, or `timed`."""
    if kernel.not_tunable is None:
        timed = kernel.module
    return {
        "name": kernel.name,
        "workload_key": kernel.workload_key,
        "weight": kernel.weight,
        "not_tunable": kernel.not_tunable.value if kernel.not_tunable else None,
        "args": [] if timed is None else [spec.to_json() for spec in kernel_args(timed)],
        "rounding": rounding_of(kernel.module["main"]),
    }


def load_other_shapes(_params: dict[str, Any]) -> dict[str, Any]:
    """Prepare the loaded network for all sizes of the dimensions that its file leaves open.

    Raises:
        InvalidModelError: As `load_open`.
    """
    loaded = _get()
    network = loaded.for_all_sizes = loaded.source()
    return network.shapes.to_json()


def build_one_kernel(params: dict[str, Any]) -> None:
    """Build a kernel as a library. A kernel that is scheduled already is built unchanged.

    Raises:
        InvalidInputError: ``"space-changed"`` or ``"does-not-apply"``.
        InvalidModelError: ``"compile-failed"``, of the untuned kernel.
    """
    loaded = _get()
    name, tuned = params["name"], params["tuned"]
    packed = _scheduled_kernel(loaded, name, tuned, default_schedules=params["default_schedules"])
    try:
        by_rule = params["default_schedules"] and tuned is None
        build_kernel(
            packed,
            loaded.target,
            Path(params["path"]),
            default_schedules=by_rule,
            packs=params["packs"],
            objects=loaded.objects,
        )
    except (MemoryError, TunefarmError):
        raise
    except Exception as error:
        if tuned is None:
            raise _does_not_compile(f"kernel {name}", error) from error
        raise InvalidInputError(
            f"the kernel does not build: {clean(str(error), 300)}", code="does-not-apply"
        ) from error


def _scheduled_kernel(
    loaded: _Loaded, name: str, tuned: dict[str, Any] | None, *, default_schedules: bool = True
) -> PackedKernel:
    if name in loaded.fixed:
        return PackedKernel(func=loaded.fixed[name])
    if tuned is not None:
        return _schedule(loaded, loaded.kernels[name], tuned)
    packed = PackedKernel(func=loaded.kernels[name].module["main"])
    return packed_default(packed, loaded.target, loaded.objects) if default_schedules else packed


def build_ahead(params: dict[str, Any]) -> None:
    """Compile kernels on all cores, before each is built as a library."""
    loaded = _get()
    if loaded.target.kind not in ("llvm", "cuda"):
        return
    scheduled: dict[bool, list[tuple[PackedKernel, bool]]] = {True: [], False: []}
    for name, tuned, packs in params["kernels"]:
        try:
            kernel = _scheduled_kernel(loaded, name, tuned, default_schedules=False)
            if tuned is None:  # whether it builds, is seen when it is
                kernel = packed_default(kernel, loaded.target)
            scheduled[tuned is not None].append((kernel, packs))
        except Exception as error:  # noqa: BLE001  (`build_kernel` says what is wrong with it)
            raise_if_out_of_memory(error)
    for is_tuned, kernels in scheduled.items():
        compile_ahead(kernels, loaded.target, loaded.objects, default_schedules=not is_tuned)


def build_whole_model(params: dict[str, Any]) -> dict[str, Any]:
    """Build the network.

    Raises:
        InvalidModelError: ``"compile-failed"``.
    """
    loaded = _get()
    path = Path(params["path"])
    try:
        module = loaded.module
        if params["untuned_entries"]:
            module = with_own_kernels(module, params["untuned_entries"])
        module = put_alternatives_in(module, loaded.alternatives, params["choices"])
        # equal kernels of alternatives were merged under the first name
        present = {str(variable.name_hint) for variable in module.get_global_vars()}
        kernels = {
            name: _schedule(loaded, loaded.kernels[name], tuned)
            for name, tuned in params["tuned"].items()
            if name in present
        }
        if params["other_shapes"]:
            network = loaded.for_all_sizes or loaded.source()
            module, kernels = with_other_shapes(module, network.module, kernels, loaded.target)
        build_model(
            module,
            loaded.target,
            path,
            kernels=kernels,
            default_schedules=params["default_schedules"],
            objects=loaded.objects,
        )
    except (MemoryError, TunefarmError):
        raise
    except Exception as error:
        raise _does_not_compile("the network", error) from error
    return {"size_bytes": path.stat().st_size}


def _schedule(loaded: _Loaded, kernel: Kernel, tuned: dict[str, Any]) -> PackedKernel:
    config = Config.from_json(tuned["config"])

    def schedule() -> PackedKernel:
        return split_off_packing(apply_recorded(kernel.module, loaded.target, config, tuned["space_key"]).mod)

    key = (kernel.workload_key, config.key)
    if key not in loaded.scheduled:
        folder = loaded.objects.folder
        loaded.scheduled[key] = kept_schedule(folder, kernel.workload_key, tuned, loaded.target, schedule)
    return loaded.scheduled[key]


def _does_not_compile(subject: str, error: Exception) -> InvalidModelError:
    return InvalidModelError(f"TVM cannot compile {subject}: {clean_message(error)}", code="compile-failed")


def _get() -> _Loaded:
    if _loaded is None:
        raise InvariantError("no network is loaded")
    return _loaded


def _deep(handler: Handler) -> Handler:
    return lambda params: with_deep_stack(lambda: handler(params))


HANDLERS: Handlers = {
    "load": _deep(load),
    "load_other_shapes": _deep(load_other_shapes),
    "build_ahead": _deep(build_ahead),
    "build_kernel": _deep(build_one_kernel),
    "build_model": _deep(build_whole_model),
}
