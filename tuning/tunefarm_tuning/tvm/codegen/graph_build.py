"""Build libraries of prepared networks and single kernels, with tuned kernels and default schedules for the others.

TVM's own ``MetaScheduleApplyDatabase`` is not used: it looks records up by a hash that changes with the version,
ignores their target, and does not report misses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.launches import workspaces_of
from tunefarm_tuning.tvm.base.relax_graph import entry_names
from tunefarm_tuning.tvm.base.reshapes import view_reshapes
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.target import pipeline_name, tvm_target
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED, walk
from tunefarm_tuning.tvm.codegen.cuda_compile import compile_all
from tunefarm_tuning.tvm.codegen.device_code import cuda_sources, export, unused_kernel, unused_library
from tunefarm_tuning.tvm.codegen.kernel_objects import KernelObjects, kernel_objects
from tunefarm_tuning.tvm.codegen.scheduled_build import (
    build_scheduled,
    builds,
    is_machines_fault,
    with_packed_defaults,
    with_schedules,
)
from tunefarm_tuning.tvm.codegen.thread_pool import thread_pool_object
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.gpu import runs_on_the_host
from tunefarm_tuning.tvm.default_schedules.schedule import (
    with_default_schedules,
)
from tunefarm_tuning.tvm.kernels.shared_orders import with_shared_orders
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, pack_function
from tunefarm_tuning.tvm.transform.weights.prepack import prepack_weights

_CUDA_GRAPHS = "relax.backend.use_cuda_graph"


def put_in(module: tvm.IRModule, kernels: Mapping[str, PackedKernel]) -> tvm.IRModule:
    """Return a prepared network with some PrimFuncs replaced by scheduled ones and their weights packed for these."""
    result = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    packed: dict[str, PackedKernel] = {}
    for name, kernel in kernels.items():
        # a later pass makes new symbols, which are unique in the module
        scheduled = kernel.func.without_attr("global_symbol").with_attr(IS_SCHEDULED, True)
        if kernel.packings:
            packed[name] = PackedKernel(func=scheduled, packings=kernel.packings)
        else:
            result.update_func(result.get_global_var(name), scheduled)
    return prepack_weights(result, packed) if packed else result


def build_model(
    module: tvm.IRModule,
    target: Target,
    path: Path,
    *,
    kernels: Mapping[str, PackedKernel] | None = None,
    default_schedules: bool = True,
    objects: KernelObjects | None = None,
) -> None:
    """Compile a prepared network, weights included, into a library for Relax's virtual machine.

    Kernels of several sets of shapes share the orders in which they take their weights, those with default schedules too.

    Args:
        module: A prepared network.
        target: The target of the build.
        path: A path from which no library was loaded before.
        kernels: Scheduled kernels to put in, by the names of those that they replace.
        default_schedules: Schedule unscheduled kernels by rule. Without, they stay as they are where the target can run them.
        objects: Kernels that are compiled already, and where to keep those that are not; none are kept by default.
    """
    with kernel_objects(objects) as kept:
        _build_model(module, target, path, kernels or {}, kept, default_schedules=default_schedules)


def _build_model(
    module: tvm.IRModule,
    target: Target,
    path: Path,
    kernels: Mapping[str, PackedKernel],
    objects: KernelObjects,
    *,
    default_schedules: bool,
) -> None:
    machine = tvm_target(target)
    passes = [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
        relax.transform.RewriteCUDAGraph(),  # nothing, unless the context asks for it
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]

    def build(scheduled: tvm.IRModule) -> None:
        with tvm.transform.PassContext(config={_CUDA_GRAPHS: _may_be_graphs(scheduled, target)}):
            lowered = tvm.transform.Sequential(passes)(view_reshapes(scheduled))
        if target.kind == "llvm":
            _link_model(lowered, target, path, objects)
            return
        with tvm.transform.PassContext(config=SPLIT_TAILS), span("LLVM: the network", SpanKind.LLVM):
            built = relax.build(lowered, machine, relax_pipeline=None)
        _export(built, path, target)

    if pipeline_name(target) != "cpu":
        # TVM recognises a reshape by its loops. If they were bound to threads, the reshape would be run.
        module = relax.transform.DeadCodeElimination(entry_names(module))(
            view_reshapes(put_in(module, kernels))
        )
        kernels = {}
    module = _with_a_kernel(module)
    scheduled = with_packed_defaults(module, kernels, target) if default_schedules else kernels
    packed = {name: kernel for name, kernel in scheduled.items() if name not in kernels}
    for careful in (False, True) if packed else ():
        if careful:
            # a single packed kernel may fail to build; the others keep their packing
            scheduled = {
                name: kernel
                for name, kernel in scheduled.items()
                if name not in packed or builds(kernel.func, target, objects)
            }
        try:
            with machine:
                network = put_in(module, scheduled)
                build(with_schedules(network, target, objects, default_schedules=True, careful=careful))
            return
        except Exception as error:
            raise_if_out_of_memory(error)
            if is_machines_fault(error):
                raise
    module = put_in(module, with_shared_orders(module, kernels))
    build_scheduled(module, target, build, objects, default_schedules=default_schedules)


def _may_be_graphs(scheduled: tvm.IRModule, target: Target) -> bool:
    """Return whether runs of a network's kernels may become CUDA graphs, which are launched at once.

    A graph keeps the addresses of its first run, and repeats only what a GPU does. Memory between the launches of one kernel comes from a
    pool of the calling thread, which is gone with it. Parts for ONNX Runtime and sorts run on the host.
    """
    return target.kind == "cuda" and not any(
        workspaces_of(func) or runs_on_the_host(func)
        if isinstance(func, tvm.tirx.PrimFunc)
        else any(isinstance(node, relax.ExternFunc) for node in walk(func))
        for func in scheduled.functions.values()
    )


def _link_model(lowered: tvm.IRModule, target: Target, path: Path, objects: KernelObjects) -> None:
    """Link a lowered network for a CPU: the virtual machine's code, weights, an object of each kernel, and the threads that run them."""
    builder = relax.ExecBuilder()
    functions = tvm_ffi.get_global_func("relax.VMCodeGen")(builder, lowered).functions
    kernels = {
        str(func.attrs["global_symbol"]): func
        for func in functions.values()
        if isinstance(func, tvm.tirx.PrimFunc)
    }
    constants = dict((lowered.attrs or {}).get("const_name_to_constant", {}))
    library = tvm_ffi.get_global_func("relax.VMLink")(
        builder, tvm_target(target), unused_library(target), [], constants
    )
    with tempfile.TemporaryDirectory(prefix="objects-", dir=path.parent) as folder:
        files = list(objects.files(kernels, target, Path(folder)))
        if (pool := thread_pool_object(target, Path(folder, "thread_pool.o"))) is not None:
            files.append(pool)
        with span("link", SpanKind.LINK):
            export(library, path, Path(folder), target, objects=files)


def _with_a_kernel(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module, with an added unused kernel if it has none (as a network that returns its input).

    TVM writes a library without any machine code as C source, which would need a compiler.
    """
    if any(isinstance(func, tvm.tirx.PrimFunc) for func in module.functions.values()):
        return module
    result = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    result["nothing"] = unused_kernel()
    return result


def build_kernel(
    kernel: PackedKernel,
    target: Target,
    path: Path,
    *,
    default_schedules: bool = True,
    packs: bool = True,
    objects: KernelObjects | None = None,
) -> None:
    """Compile a kernel, in the same way as `build_model`, into a library whose ``main`` takes the kernel's arguments.

    With `packs`, the library's function ``pack_<number>`` packs an argument that the kernel takes packed. Packed arguments too are passed
    in the shape of the workload.
    """
    module = tvm.IRModule(_kernel_functions(kernel, packs=packs))
    # Not the arguments' shapes: a packed argument has another one than the kernel declares.
    checked = not kernel.packings

    def build(scheduled: tvm.IRModule) -> None:
        if target.kind == "llvm":
            named = {str(variable.name_hint): func for variable, func in scheduled.functions.items()}
            kept.link(named, target, path, checked=checked)
            return
        _export(_built_for_gpu(scheduled, target, checked=checked), path, target)

    with kernel_objects(objects) as kept:
        build_scheduled(module, target, build, kept, default_schedules=default_schedules)


def compile_ahead(
    kernels: Iterable[tuple[PackedKernel, bool]],
    target: Target,
    objects: KernelObjects,
    *,
    default_schedules: bool,
) -> None:
    """Compile what `build_kernel` links for kernels, each with its `packs`, on all cores."""
    if target.kind != "llvm":
        _compile_for_gpu(kernels, target, objects, default_schedules=default_schedules)
        return
    modules = []
    for kernel, packs in kernels:
        module = tvm.IRModule(_kernel_functions(kernel, packs=packs))
        modules.append(with_default_schedules(module, target) if default_schedules else module)
    functions = [func for module in modules for func in module.functions.values()]
    objects.compile_all(functions, target)


def _compile_for_gpu(
    kernels: Iterable[tuple[PackedKernel, bool]],
    target: Target,
    objects: KernelObjects,
    *,
    default_schedules: bool,
) -> None:
    sources: list[str] = []
    for kernel, packs in kernels:
        try:
            with tvm_target(target):
                scheduled = with_schedules(
                    tvm.IRModule(_kernel_functions(kernel, packs=packs)),
                    target,
                    objects,
                    default_schedules=default_schedules,
                )
            sources += cuda_sources(_built_for_gpu(scheduled, target, checked=not kernel.packings))
        except Exception as error:  # noqa: BLE001  (`build_kernel` says what is wrong with it)
            raise_if_out_of_memory(error)
    with tempfile.TemporaryDirectory(prefix="nvcc-") as folder:
        compile_all((source.encode() for source in sources), target, Path(folder))


def _built_for_gpu(scheduled: tvm.IRModule, target: Target, *, checked: bool) -> Any:
    config = {**SPLIT_TAILS, "tirx.disable_assert": not checked}
    with tvm.transform.PassContext(config=config), span("LLVM: a kernel", SpanKind.LLVM):
        return tvm.tirx.build(scheduled, tvm_target(target))


def _kernel_functions(kernel: PackedKernel, *, packs: bool) -> dict[str, tvm.tirx.PrimFunc]:
    functions = {"main": kernel.func}
    if packs:
        functions |= {
            f"pack_{number}": pack_function(packing).with_attr(IS_SCHEDULED, True)
            for number, packing in kernel.packings.items()
        }
    return {name: func.with_attr("global_symbol", name) for name, func in functions.items()}


@span("link", SpanKind.LINK)
def _export(built: Any, path: Path, target: Target) -> None:
    with tempfile.TemporaryDirectory(prefix="objects-", dir=path.parent) as folder:
        export(built, path, Path(folder), target)
