"""From a prepared module to a library: tuned kernels put in, the rest given default schedules.

TVM's own ``MetaScheduleApplyDatabase`` is not used: it looks records up by a hash that changes with the version,
does not ask for which target they are, and says nothing of what it did not find.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, te

from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.resources import raise_if_out_of_memory
from tunefarm_tuning.tvm.base.target import pipeline_name, tvm_target
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED
from tunefarm_tuning.tvm.codegen.device_code import export
from tunefarm_tuning.tvm.codegen.linker import link
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.gpu import with_gpu_schedules
from tunefarm_tuning.tvm.default_schedules.schedule import (
    NoDefaultSchedule,
    packed_default_schedule,
    with_default_schedules,
)
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, pack_function, packable_weights
from tunefarm_tuning.tvm.transform.weights.prepack import prepack_weights


def put_in(module: tvm.IRModule, kernels: Mapping[str, PackedKernel]) -> tvm.IRModule:
    """Return the module with some of its PrimFuncs, by name, replaced by scheduled ones, and weights as these take them."""
    made = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    packed: dict[str, PackedKernel] = {}
    for name, kernel in kernels.items():
        # The symbol is given anew when all functions of the module are known.
        scheduled = kernel.func.without_attr("global_symbol").with_attr(IS_SCHEDULED, True)
        if kernel.packings:
            packed[name] = PackedKernel(func=scheduled, packings=kernel.packings)
        else:
            made.update_func(made.get_global_var(name), scheduled)
    return prepack_weights(made, packed) if packed else made


def build_model(module: tvm.IRModule, target: Target, path: Path, *, plain: bool = False) -> None:
    """Compile a prepared network, weights included, into a library for Relax's virtual machine.

    Args:
        module: Kernels that have no schedule get the default one, if it builds.
        target: What to build for.
        path: A fresh one.
        plain: Leave them as plain loops instead, where a target can run such.
    """
    machine = tvm_target(target)
    passes = [
        relax.transform.RewriteDataflowReshape(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]

    def make(scheduled: tvm.IRModule) -> None:
        lowered = tvm.transform.Sequential(passes)(scheduled)
        with tvm.transform.PassContext(config=SPLIT_TAILS):
            built = relax.build(lowered, machine, relax_pipeline=None)
        _export(built, path, target)

    if pipeline_name(target) != "cpu":
        # A reshape is known by its loops: once these are bound to threads, it would be run.
        module = relax.transform.DeadCodeElimination(["main"])(
            relax.transform.RewriteDataflowReshape()(module)
        )
    module = _with_a_kernel(module)
    packed = {} if plain else _packed_defaults(module, target)
    for careful in (False, True) if packed else ():
        if careful:
            # One kernel may be at fault, and is never to be; the others keep their order of weights.
            packed = {name: kernel for name, kernel in packed.items() if _builds(kernel.func, target)}
        try:
            with machine:
                schedules = _default_schedules(target, plain=False, careful=careful)
                make(tvm.transform.Sequential(schedules)(put_in(module, packed)))
            return
        except Exception as error:
            raise_if_out_of_memory(error)
            if _is_the_machines(error):
                raise
    _make_scheduled(module, target, make, plain=plain)


def packed_default(kernel: PackedKernel, target: Target) -> PackedKernel:
    """Return a kernel without a schedule by default, with large weights in the order in which it reads them.

    As it was, where it is for no CPU, where that changes no order, or where it does not build.
    """
    if (
        pipeline_name(target) != "cpu"
        or not packable_weights(kernel.func)
        or IS_SCHEDULED in kernel.func.attrs
    ):
        return kernel
    try:
        made = packed_default_schedule(kernel.func, target)
    except NoDefaultSchedule:
        return kernel
    return made if made.packings and _builds(made.func, target) else kernel


def _packed_defaults(module: tvm.IRModule, target: Target) -> dict[str, PackedKernel]:
    """Return by name the kernels of a network that take large weights in another order by default."""
    found: dict[str, PackedKernel] = {}
    if pipeline_name(target) != "cpu":
        return found
    for variable, func in module.functions.items():
        if isinstance(func, tvm.tirx.PrimFunc) and IS_SCHEDULED not in func.attrs and packable_weights(func):
            with suppress(NoDefaultSchedule):
                made = packed_default_schedule(func, target)
                if made.packings:
                    found[str(variable.name_hint)] = made
    return found


def _make_scheduled(
    module: tvm.IRModule, target: Target, make: Callable[[tvm.IRModule], None], *, plain: bool
) -> None:
    """Make what is made of a module with default schedules; those that do not build are left out."""
    with tvm_target(target):
        try:
            make(tvm.transform.Sequential(_default_schedules(target, plain=plain))(module))
            return
        except Exception as error:
            raise_if_out_of_memory(error)
            if plain or _is_the_machines(error):
                raise
        # A default schedule may be at fault, and is never to be: each is tried alone.
        make(tvm.transform.Sequential(_default_schedules(target, plain=False, careful=True))(module))


def _is_the_machines(error: Exception) -> bool:
    """Whether no kernel at all can be built here."""
    return isinstance(error, TunefarmError) and error.code not in ("internal", "cuda-compile-failed")


def _with_a_kernel(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module, with a kernel that nobody calls if it has none (a network that hands its input through).

    Without any machine code of its own, TVM writes the library as C source, and asks for a compiler.
    """
    if any(isinstance(func, tvm.tirx.PrimFunc) for func in module.functions.values()):
        return module
    tensor = te.placeholder((1,), name="nothing")
    made = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    made["nothing"] = te.create_prim_func([tensor, te.compute((1,), lambda i: tensor[i])])
    return made


def build_kernel(kernel: PackedKernel, target: Target, path: Path, *, plain: bool = False) -> None:
    """Compile one kernel into a library whose ``main`` takes its arguments; the last three arguments as of `build_model`.

    An argument that it takes packed is made of the plain one by the library's function ``pack_<number>``; all have the shape
    that they have in the workload.
    """
    machine = tvm_target(target)
    functions = {"main": kernel.func}
    functions |= {f"pack_{n}": pack_function(packing) for n, packing in kernel.packings.items()}
    module = tvm.IRModule({name: func.with_attr("global_symbol", name) for name, func in functions.items()})

    def make(scheduled: tvm.IRModule) -> None:
        # Without the checks of its arguments' shapes: a packed one has another shape than the kernel says.
        config = {**SPLIT_TAILS, "tirx.disable_assert": bool(kernel.packings)}
        with tvm.transform.PassContext(config=config):
            built = tvm.tirx.build(scheduled, machine)
        _export(built, path, target)

    _make_scheduled(module, target, make, plain=plain)


def _default_schedules(target: Target, *, plain: bool, careful: bool = False) -> list[Any]:
    """Return what schedules the kernels that have no schedule yet.

    On a GPU a kernel without a schedule cannot be built: its loops are bound to no threads.
    """
    if pipeline_name(target) == "cpu":
        by_rule = tvm.transform.module_pass(
            lambda module, _: with_default_schedules(
                module, target, fits=lambda func: not careful or _builds(func, target)
            ),
            opt_level=0,
            name="DefaultSchedules",
        )
        return [] if plain else [by_rule]
    on_a_gpu = tvm.transform.module_pass(
        lambda module, _: with_gpu_schedules(
            module,
            target,
            tvm_target(target),
            plain=plain,
            fits=(lambda func: _builds(func, target)) if careful else None,
        ),
        opt_level=0,
        name="GpuSchedules",
    )
    return [on_a_gpu]


def _builds(func: tvm.tirx.PrimFunc, target: Target) -> bool:
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    try:
        with tvm.transform.PassContext(config=SPLIT_TAILS):
            built = tvm.tirx.build(module, tvm_target(target))
        if target.kind == "cuda":  # the source may still be wrong
            with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
                export(built, Path(folder, "kernel.so"), Path(folder), target)
    except Exception as error:  # noqa: BLE001  (TVM's many)
        raise_if_out_of_memory(error)
        return False
    return True


def _export(built: Any, path: Path, target: Target) -> None:
    if target.kind == "cuda":
        with tempfile.TemporaryDirectory(prefix="objects-", dir=path.parent) as folder:
            export(built, path, Path(folder), target)
        return

    def compile_(output: str, objects: list[str], **_: Any) -> None:
        link(objects, output, target)

    compile_.object_format = "o"  # type: ignore[attr-defined]  # else TVM asks a C compiler for the target triple
    built.export_library(str(path), fcompile=compile_)
