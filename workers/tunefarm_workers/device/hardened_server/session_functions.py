"""What a session can ask its device beside what TVM has: how its GPU is, and what `device_offers` has."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace

from tunefarm_tuning.device_offers import OFFERS
from tunefarm_tuning.gpu_state import GPU_STATE
from tunefarm_workers.device.gpu_busy import computing_of, is_ours_or_gone, named
from tunefarm_workers.device.gpu_reading import read_processes, read_state
from tunefarm_workers.device.nvml import Nvml, open_nvml, preload

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def offer(environment: Mapping[str, str] = os.environ) -> None:
    """Let sessions ask, if the server is of one GPU that its agent named. The driver is opened by who asks first."""
    uuid = environment.get(_VISIBLE, "")
    if not uuid.startswith("GPU-") or "," in uuid:
        return
    import tvm

    nvml = open_nvml(environment)
    preload()
    tvm.register_global_func(GPU_STATE, lambda: gpu_state(nvml, uuid), override=True)
    for name, function in OFFERS.items():
        tvm.register_global_func(name, function, override=True)


def gpu_state(nvml: Nvml, uuid: str) -> str:
    """Return, as JSON, how the GPU is, and who else computes on it. Called in a session's process."""
    state = read_state(nvml, uuid)
    if nvml.tells_our_pids():
        strangers = [one for one in read_processes(nvml, uuid) or () if not is_ours_or_gone(one.pid)]
        state = replace(state, used_by=named(computing_of(strangers)))
    return json.dumps(state.to_json())
