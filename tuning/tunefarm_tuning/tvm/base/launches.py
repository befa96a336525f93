"""Read off a lowered kernel how it is launched on a GPU: blocks, threads and shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.instrument import pass_instrument
from tvm.s_tir import SBlock
from tvm.s_tir.analysis import detect_buffer_access_lca

from tunefarm_tuning.target.gpu_launch import Launch
from tunefarm_tuning.tvm.base.tir import walk

LAUNCHED = "tirx.kernel_launch_params"
"""TVM's attribute of a GPU's kernel, once it is apart from the code that launches it."""
_SPLIT = "tirx.SplitHostDevice"
_AXES = "xyz"


@pass_instrument
class LaunchWatch:
    """Notes the launches of all kernels that are built in its context: ``PassContext(instruments=[watch])``."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def run_after_pass(self, mod: tvm.IRModule, info: Any) -> None:
        """Read the kernels once they are apart from the code that launches them."""
        if info.name == _SPLIT:
            self.launches += launches_in(mod)


def launches_of(func: tirx.PrimFunc, machine: tvm.target.Target) -> list[Launch]:
    """Return the launches of a scheduled kernel, in order; it is lowered for that, but not compiled."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    pipeline, _, _ = tirx.get_default_tir_pipeline(machine)
    return launches_in(pipeline(tirx.transform.BindTarget(machine)(module)))


def workspaces_of(func: tirx.PrimFunc) -> list[str]:
    """Return the names of a scheduled kernel's buffers that outlive its launches: one launch writes what another reads.

    The code that launches them takes these from a pool of its thread, each time that it runs.
    """
    # A statement keeps its address as long as the kernel lives.
    inside = {node.__chandle__() for launch in walk(func.body) if _is_launch(launch) for node in walk(launch)}
    common = detect_buffer_access_lca(func)
    names = []
    for node in walk(func.body):
        if node.__chandle__() in inside:
            continue
        if isinstance(node, tirx.AllocBuffer):
            names.append(str(node.buffer.name))
        elif isinstance(node, SBlock):
            names += [
                str(buffer.name)
                for buffer in node.alloc_buffers
                if (stmt := common.get(buffer)) is None or stmt.__chandle__() not in inside
            ]
    return names


def _is_launch(node: Any) -> bool:
    """Return whether a statement is a loop over blocks or threads of a GPU."""
    if isinstance(node, tirx.For):
        return node.thread_binding is not None
    return isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent"


def launches_in(lowered: tvm.IRModule) -> list[Launch]:
    """Return the launches of a lowered module's kernels whose extents are constants."""
    kernels = [
        (str(variable.name_hint), func)
        for variable, func in lowered.functions.items()
        if isinstance(func, tirx.PrimFunc) and func.attrs and func.attrs.get(LAUNCHED)
    ]
    return [launch for name, func in kernels for launch in _launch(name, func)]


def _launch(name: str, func: tirx.PrimFunc) -> Iterator[Launch]:
    extents: dict[str, int] = {}
    shared = {"shared": 0, "shared.dyn": 0}
    for node in walk(func.body):
        if isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent":
            if not isinstance(node.value, tirx.IntImm):
                return  # sizes that are known when it runs only
            extents[str(node.node.thread_tag)] = int(node.value)
        elif isinstance(node, tirx.AllocBuffer):
            scope = str(node.buffer.scope())
            if scope in shared:
                shared[scope] += _bytes(node.buffer)

    def along(what: str) -> tuple[int, int, int]:
        x, y, z = (extents.get(f"{what}Idx.{axis}", 1) for axis in _AXES)
        return x, y, z

    yield Launch(
        kernel=name,
        blocks=along("block"),
        threads=along("thread"),
        static_bytes=shared["shared"],
        dynamic_bytes=shared["shared.dyn"],
    )


def _bytes(buffer: Any) -> int:
    size = int(tvm.runtime.DataType(str(buffer.dtype)).itemsize)
    return prod(int(extent) for extent in buffer.shape) * max(size, 1)
