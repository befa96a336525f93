"""The modules that import tvm. They run only in child processes, because they read strangers' models."""

from __future__ import annotations

from tunefarm_tuning.tvm.base.tvm_import import import_tvm

import_tvm()  # before any of them does, in twice the time
