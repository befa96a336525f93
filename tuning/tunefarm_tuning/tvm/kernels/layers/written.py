"""Kernels whose loops are written by hand, with TVM's builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED, OPAQUE, whole

DTYPE = "float32"


class Writer(Protocol):
    """Writes the loops of a kernel."""

    @property
    def inputs(self) -> Sequence[Any]:
        """The arguments that it reads, made by `argument`."""
        ...

    @property
    def result(self) -> Any:
        """The argument that it writes, made after these."""
        ...

    def write(self) -> None:
        """Write them."""
        ...


def written_kernel(name: str, attribute: str, make_writer: Callable[[], Writer]) -> tirx.PrimFunc:
    """Return the kernel that a writer writes.

    Args:
        name: Of its block.
        attribute: The attribute of the PrimFunc that tells what it computes.
        make_writer: Makes the writer, within the builder.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True, IS_SCHEDULED: True, "op_pattern": OPAQUE, attribute: True})
        writer = make_writer()
        with T.sblock(name):
            T.reads([whole(buffer) for buffer in writer.inputs])
            T.writes([whole(writer.result)])
            writer.write()
    func: tirx.PrimFunc = builder.get().without_attr("global_symbol")
    return func


def argument(name: str, shape: Sequence[int], dtype: str = DTYPE) -> Any:
    """Add an argument to the kernel."""
    return T.arg(name, T.Buffer(shape, dtype))


def float_number(value: float) -> Any:
    """Return a number in float32."""
    return tirx.const(value, DTYPE)
