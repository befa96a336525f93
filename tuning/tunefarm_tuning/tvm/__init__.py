"""The modules that import tvm. They run only in child processes (`children`), because they read strangers' models.

In the order in which a network meets them: `frontend` imports it into Relax, `transform` prepares it with graph passes, `kernels` has the
kernels that we make ourselves, `tasks` finds the kernels to tune and other algorithms for them, `space` makes config spaces of them and
schedules of configs, `default_schedules` schedules the others, `codegen` builds libraries, `device` runs them.
"""

from __future__ import annotations

from tunefarm_tuning.tvm.base.tvm_import import import_tvm

import_tvm()  # before any of them does, in twice the time
