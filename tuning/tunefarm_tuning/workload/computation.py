"""`Computation`: the loops of a workload's main block and the tensors that they read and write.

A config space has it beside its knobs, so that a cost model can compare configs of different workloads without TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_REGISTERS = 32
"""Of AVX-512 and of ARM64; computations that were written down before others were told apart have these."""

Term = tuple[int, int]
"""A loop's index in `Computation.axes`, and the stride of its iterations in the tensor's index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A loop of the main block; it is a reduction if it indexes no output."""

    extent: int
    reduces: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A tensor that the main block reads or writes.

    Attributes:
        dims: For each dimension, outermost first, the loops that move its index.
    """

    itemsize_bytes: int
    writes: bool
    dims: tuple[tuple[Term, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """The main block of a workload: the one whose loops are tiled.

    Attributes:
        axes: Its loops, outermost first.
        accesses: The tensors that it reads, in the order of the program, then those that it writes.
        vector_bytes: Width of the target's vector registers, in bytes.
        registers: How many of them there are.
    """

    axes: tuple[Axis, ...]
    accesses: tuple[Access, ...]
    vector_bytes: int
    registers: int = _REGISTERS

    @property
    def family(self) -> str:
        """The structure without extents: equal for two convolutions that differ only in size."""
        axes = "".join("R" if axis.reduces else "S" for axis in self.axes)
        accesses = [
            ("w" if access.writes else "r")
            + str(access.itemsize_bytes)
            + "".join("[" + "+".join(str(axis) for axis, _ in dim) + "]" for dim in access.dims)
            for access in self.accesses
        ]
        return " ".join([axes, *accesses])

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the loops, outermost first."""
        return tuple(axis.extent for axis in self.axes)

    def to_json(self) -> dict[str, Any]:
        return {
            "axes": [[axis.extent, axis.reduces] for axis in self.axes],
            "accesses": [
                [access.itemsize_bytes, access.writes, [[list(term) for term in dim] for dim in access.dims]]
                for access in self.accesses
            ],
            "vector_bytes": self.vector_bytes,
            "registers": self.registers,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Computation:
        """Read what `to_json` wrote.

        Raises:
            ValueError: If a value is missing, of the wrong type, or names an axis that does not exist.
        """
        try:
            axes = tuple(Axis(extent=int(extent), reduces=bool(reduces)) for extent, reduces in data["axes"])
            accesses = tuple(
                Access(
                    itemsize_bytes=int(size),
                    writes=bool(writes),
                    dims=tuple(tuple((int(axis), int(stride)) for axis, stride in dim) for dim in dims),
                )
                for size, writes, dims in data["accesses"]
            )
            computation = cls(
                axes=axes,
                accesses=accesses,
                vector_bytes=int(data["vector_bytes"]),
                registers=int(data.get("registers", _REGISTERS)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a computation: {str(data)[:80]} ({error})") from error
        indices = {axis for access in accesses for dim in access.dims for axis, _ in dim}
        if not all(0 <= index < len(axes) for index in indices) or any(axis.extent < 1 for axis in axes):
            raise ValueError(f"not a computation: {str(data)[:80]} (an axis that is not there)")
        return computation
