"""Check that kernels can run on a GPU of this machine before it is offered to the farm."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS
from tunefarm_tuning.process import Access, ChildFailed, ChildLimits, call_in_child

log = logging.getLogger("tunefarm.device")

_MODULE = "tunefarm_tuning.tvm.children.machine"
_TIMEOUT_SEC = 60.0


def check_cuda(uuid: str | None, environment: Mapping[str, str] = os.environ) -> None:
    """Check that TVM finds a GPU. If a library is missing, TVM finds none, and every kernel would fail.

    Of several GPUs, `uuid` names the one. A GPU of recorded answers is not looked for. A GPU whose driver does not
    answer is not refused: it may come to itself, and is not measured on until it has been calibrated.

    Raises:
        InvalidInputError: ``no-cuda``; the message names what is missing.
    """
    if environment.get(ANSWERS):
        return
    visible = {} if uuid is None else {"CUDA_VISIBLE_DEVICES": uuid}
    limits = ChildLimits(memory_bytes=None)
    try:
        gpu = call_in_child(
            _MODULE,
            "look_for_gpu",
            {},
            limits=limits,
            access=Access(gpu=True),
            timeout_sec=_TIMEOUT_SEC,
            env=visible,
        )
    except ChildFailed as error:
        log.warning("cannot check whether TVM sees the GPU: %s", error.message)
        return
    if not gpu["exists"]:
        raise InvalidInputError(f"TVM sees no GPU here: {gpu['why']}", code="no-cuda")
