"""Handlers for `test_design_space.py`."""

from __future__ import annotations

import sys
from typing import Any

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.space.design_space import DesignSpace


def loaded(params: dict[str, Any]) -> list[str]:
    """Return the modules of intrinsics that making a design space has imported."""
    DesignSpace(module_from_text(params["ir"]), Target.from_json(params["target"]))
    return [name for name in sys.modules if "tensor_intrin" in name]


HANDLERS = {"loaded": loaded}
