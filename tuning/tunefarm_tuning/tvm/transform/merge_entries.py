"""Merge prepared networks into one module with several entry functions, which share kernels and weights."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.tvm.base.relax_graph import entry_names
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.kernels.weight_packing import kernel_calls
from tunefarm_tuning.workload.model import entry_name

_MAIN = "main"
_SYMBOL = "global_symbol"
_OWNER = "tunefarm.entry"
"""Attribute of a kernel that one entry alone calls: its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedModule:
    """Networks as the entries of one module.

    Attributes:
        module: Its Relax functions are the entries: ``main``, ``main_1``, ... in the order of the networks.
        kernel_names: For each network, the name in `module` of each of its kernels, by its name in the network.
    """

    module: tvm.IRModule
    kernel_names: tuple[Mapping[str, str], ...]


def merge_entries(modules: Iterable[tvm.IRModule]) -> MergedModule:
    """Return one module whose entries are the ``main`` functions of prepared modules.

    Equal kernels become one, and so do constants of equal bytes. Other kernels of the same name get new names. The modules may be
    made while they are merged: then no two networks' weights are in memory at the same time.

    Args:
        modules: Lowered modules: ``main`` is the only Relax function of each.
    """
    merger = _Merger()
    names = tuple(merger.add(module) for module in modules)
    return MergedModule(module=merger.builder.get(), kernel_names=names)


def add_entry(module: tvm.IRModule, other: tvm.IRModule) -> tvm.IRModule:
    """Return a module with the ``main`` of another prepared one as its last entry; see `merge_entries`."""
    merger = _Merger(module)
    merger.add(other)
    return merger.builder.get()


def with_own_kernels(module: tvm.IRModule, entries: Collection[str]) -> tvm.IRModule:
    """Return a module in which some entries call copies of their kernels, under other names; weights stay shared.

    The kernels of the other entries can then be scheduled without these.
    """
    builder = relax.BlockBuilder(module)
    for entry in sorted(entries):
        copies: dict[str, Any] = {}
        for name, _ in kernel_calls(module[entry].body):
            if name not in copies:
                # Without the mark, the builder would return the equal kernel that it has.
                copy = module[name].with_attr(_OWNER, entry)
                copies[name] = builder.add_func(copy, f"{name}_of_{entry}")
        rewritten = _EntryRewriter(copies, lambda constant: constant).visit_expr(module[entry])
        builder.update_func(builder.get().get_global_var(entry), rewritten)
    result = builder.get()
    copied: tvm.IRModule = relax.transform.DeadCodeElimination(entry_names(result))(result)
    return copied


class _Merger:
    """Merges networks, into a module that has some already if it is given."""

    def __init__(self, module: tvm.IRModule | None = None) -> None:
        self.builder = relax.BlockBuilder(module)
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Any] = {}
        self._entries = 0
        if module is not None:
            known = entry_names(module)
            self._entries = len(known)
            for node in (node for entry in known for node in walk(module[entry].body)):
                if isinstance(node, tvm.ir.GenericConst) and isinstance(node.ty, relax.TensorType):
                    self._shared(node)

    def add(self, module: tvm.IRModule) -> dict[str, str]:
        """Add a network as the next entry; return the new names of its kernels."""
        kernels: dict[str, Any] = {}
        for variable, func in module.functions.items():
            name = str(variable.name_hint)
            if isinstance(func, tirx.PrimFunc):
                # The builder returns the variable of an equal function that it already has.
                kernels[name] = self.builder.add_func(func.without_attr(_SYMBOL), name)
            elif name != _MAIN:
                raise InvariantError(f"the function {name} is neither a kernel nor an entry")
        entry = entry_name(self._entries)
        self._entries += 1
        main = _EntryRewriter(kernels, self._shared).visit_expr(module[_MAIN])
        # `add_func` would merge equal entries, too; each is to keep its name.
        variable = self.builder.add_func(main.with_attr(_SYMBOL, entry), entry)
        if str(variable.name_hint) != entry:
            raise InvariantError(f"the entry {entry} is named {variable.name_hint}")
        return {name: str(variable.name_hint) for name, variable in kernels.items()}

    def _shared(self, constant: Any) -> Any:
        """Return the first constant of the same dtype, shape and bytes."""
        tensor = constant.value
        array = tensor.numpy()
        digest = hashlib.sha256(array.tobytes()).digest()
        key = (str(tensor.dtype), tuple(int(size) for size in tensor.shape), digest)
        return self._constants.setdefault(key, constant)


@relax.expr_functor.mutator
class _EntryRewriter(relax.PyExprMutator):  # type: ignore[misc]
    """Makes a function call kernels of another module and use its constants."""

    def __init__(self, kernels: Mapping[str, Any], shared: Any) -> None:
        super().__init__()
        self._kernels = kernels
        self._shared = shared

    def visit_global_var_(self, variable: Any) -> Any:
        return self._kernels[str(variable.name_hint)]

    def visit_generic_const_(self, constant: Any) -> Any:
        return self._shared(constant)
