"""`build_child` as it is on a machine where no CUDA toolkit is at its usual place."""

from __future__ import annotations

import os
from pathlib import Path

from tunefarm_tuning.target import toolchain
from tunefarm_tuning.tvm.children import build as build_child

toolchain._USUAL = Path(os.devnull)

HANDLERS = build_child.HANDLERS
