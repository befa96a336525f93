"""Which kernels are beside each other in a network's graph: one reads what the other writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import entry_names
from tunefarm_tuning.tvm.tasks.extract import Kernel


def neighbours(module: tvm.IRModule, kernels: Sequence[Kernel]) -> dict[str, list[str]]:
    """Return, for each workload key of a prepared module, the keys of the kernels before and after any of its calls, sorted.

    Values that no kernel makes (reshapes as views, parts of tuples) are seen through. Branches are not looked into.
    """
    key_of = {kernel.name: kernel.workload_key for kernel in kernels}
    neighbours_of: dict[str, set[str]] = {}
    for entry in entry_names(module):
        made_by: dict[Any, frozenset[str]] = {}
        for block in module[entry].body.blocks:
            for binding in block.bindings:
                value = binding.value
                before = _makers(made_by, value)
                name = _kernel_name(value)
                if name is None or name not in key_of:
                    made_by[binding.var] = before
                    continue
                key = key_of[name]
                made_by[binding.var] = frozenset({key})
                for other in before:
                    neighbours_of.setdefault(key, set()).add(f"after {other}")
                    neighbours_of.setdefault(other, set()).add(f"before {key}")
    return {key: sorted(others) for key, others in neighbours_of.items()}


def _kernel_name(value: Any) -> str | None:
    if isinstance(value, tvm.ir.Call) and value.args and isinstance(value.args[0], tvm.ir.GlobalVar):
        return str(value.args[0].name_hint)
    return None


def _makers(made_by: Mapping[Any, frozenset[str]], value: Any) -> frozenset[str]:
    makers: frozenset[str] = frozenset()
    for argument in _arguments(value):
        if isinstance(argument, relax.Var):
            makers |= made_by.get(argument, frozenset())
        elif isinstance(argument, relax.Tuple):
            makers |= _makers(made_by, argument)
    return makers


def _arguments(value: Any) -> Iterable[Any]:
    if isinstance(value, relax.Var):
        return [value]
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    if isinstance(value, relax.TupleGetItem):
        return [value.tuple_value]
    return list(value.args) if isinstance(value, tvm.ir.Call) else []
