"""What a session can ask its device beside what TVM has: how its GPU is, and what `device_offers` has."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tunefarm_tuning.measure.device_functions import OFFERS
from tunefarm_tuning.measure.gpu.nvml import preload
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.state import GPU_STATE
from tunefarm_tuning.measure.gpu.users import state_and_users

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def offer(environment: Mapping[str, str] = os.environ) -> None:
    """Let sessions ask, if the server is of one GPU that its agent named. The driver is opened by who asks first."""
    uuid = environment.get(_VISIBLE, "")
    if not uuid.startswith("GPU-") or "," in uuid:
        return
    import tvm

    nvml = open_nvml(environment)
    preload()
    tvm.register_global_func(GPU_STATE, lambda: state_and_users(nvml, uuid), override=True)
    for name, function in OFFERS.items():
        tvm.register_global_func(name, function, override=True)
