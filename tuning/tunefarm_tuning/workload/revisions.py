"""Revisions of the code that derives data from a model. A farm derives its data again if the code has changed since.

Each number is stored with the data that it is about; rows from before there were numbers have 0. Add one to a number when you
change its meaning: workload keys do not show the change, and a farm would keep using what an older release derived.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata

IMPORTER = 19
"""Which models can be imported. A model that an earlier revision refused may be uploaded again."""

GRAPH_PASSES = 32
"""Which kernels a model has. The compiler asks for records of other tasks than those that earlier passes extracted."""

SPACES = 5
"""Which configs a workload has. Configs of an earlier space may no longer apply."""

KERNEL_CODE = 42
"""Which machine code a workload has under a config or a default schedule, and how kernels are checked. What earlier compiles found
out about kernels (`records.findings`) no longer holds."""

REFERENCES = 6
"""How ONNX Runtime is asked for expected outputs, and how far outputs may be from them."""


_release = cache(metadata.version)


def code_revision() -> tuple[str | int, ...]:
    """Return what machine code and findings about it depend on in this code: the release, and revisions."""
    return (_release("tunefarm"), GRAPH_PASSES, SPACES, KERNEL_CODE)


def reference_revision() -> tuple[str | int, ...]:
    """Return what expected outputs depend on in this code."""
    return (_release("tunefarm"), IMPORTER, REFERENCES)
