"""Child process: whether TVM can use a GPU of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm

from tunefarm_tuning.artifact.cuda_runtime import why_no_gpu


def look(_params: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``exists``, and ``why`` not."""
    exists = bool(tvm.cuda(0).exist)
    return {"exists": exists, "why": "" if exists else why_no_gpu()}


HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {"look": look}
