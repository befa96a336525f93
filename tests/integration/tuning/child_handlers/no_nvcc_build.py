"""`build_child` as on a machine without a CUDA toolkit at its usual place, or among its packages."""

from __future__ import annotations

import os
from pathlib import Path

from tunefarm_tuning.target import toolchain
from tunefarm_tuning.tvm.children import build as build_child

toolchain._USUAL = toolchain._WHEEL = Path(os.devnull)

HANDLERS = build_child.HANDLERS
