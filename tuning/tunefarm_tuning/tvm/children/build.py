"""Child process: make config spaces, and build kernels of configs.

Handlers:

- `open_task`: ``handle``, ``ir``, ``target`` -> null. Takes in a workload, which later calls name by its handle.
- `config_space`: ``handle`` -> the config space (`ConfigSpace.to_json`).
- `build_kernel`: ``handle``, ``config``, ``output`` (path), ``work_dir``, ``recent`` (start of the paths of kernels built
  lately, which end in their codes) -> ``config`` as applied; ``code``: digest of the scheduled kernel; ``found``: whether a
  kernel built lately was linked to ``output``; ``build_sec``, ``apply_sec``, ``resident_bytes``; ``facts``: what a GPU's machine
  code uses (`code_facts`); ``failure``: null, or outcome and message.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.tirx import build
from tvm_ffi import structural_hash

from tunefarm_tuning.core.errors import InvalidInputError, InvariantError, TunefarmError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.core.output_file import link_or_copy
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.records.record import GPU_CODE
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.gpu import limits_of_target
from tunefarm_tuning.target.gpu_launch import code_facts
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import check_can_build
from tunefarm_tuning.tvm.base.launches import LaunchWatch
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.device_code import export
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.space.design_space import DesignSpace

MAX_OPEN_TASKS = 128
"""Maximum number of open tasks, more than a large network has. `measure.builder.worker` has the same number."""

_open: OrderedDict[str, tuple[Target, DesignSpace]] = OrderedDict()


def open_task(params: dict[str, Any]) -> None:
    """Open a task for a workload.

    Raises:
        InvalidInputError: If it cannot be built for the target, or be scheduled (`DesignSpace`).
    """
    target = Target.from_json(params["target"])
    check_can_build(target)
    _open[params["handle"]] = (target, DesignSpace(module_from_text(params["ir"]), target))
    while len(_open) > MAX_OPEN_TASKS:
        _open.popitem(last=False)


def config_space(params: dict[str, Any]) -> Any:
    """Return the config space of an open task."""
    return _space(params)[1].config_space.to_json()


def build_kernel(params: dict[str, Any]) -> dict[str, Any]:
    """Build the kernel of a config, unless an equal one was built recently. A candidate's failure is an answer."""
    target, space = _space(params)
    config = Config.from_json(params["config"])
    output = Path(params["output"])
    started = time.monotonic()
    failure: list[str] | None = None
    facts: dict[str, Any] = {}
    code, is_known = "", False
    try:
        try:
            with span("schedule", SpanKind.GRAPH):
                schedule, config = space.apply(config)
        finally:
            apply_sec = time.monotonic() - started
        mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
        code = f"{structural_hash(mod) % (1 << 64):016x}"
        is_known = link_or_copy(Path(f"{params['recent']}{code}"), output)
        try:
            if not is_known:
                facts, obstacle = _build(mod, target, output, Path(params["work_dir"]))
                failure = [Outcome.RESOURCE_ERROR, obstacle] if obstacle else None
        except MemoryError:
            raise
        except TunefarmError as error:
            failure = [Outcome.BUILD_ERROR, error.message]
        except Exception as error:  # noqa: BLE001  (TVM has many error types; a candidate that does not build is data)
            failure = [Outcome.BUILD_ERROR, f"{type(error).__name__}: {clean(str(error), 500)}"]
    except InvalidInputError as error:
        failure = [Outcome.INSTANTIATION_ERROR, error.message]
    return {
        "config": config.to_json(),
        "code": code,
        "found": is_known,
        "build_sec": time.monotonic() - started,
        "apply_sec": apply_sec,
        "resident_bytes": _resident_bytes(),
        "facts": facts,
        "failure": failure,
    }


def _build(mod: tvm.IRModule, target: Target, output: Path, work_dir: Path) -> tuple[dict[str, Any], str]:
    """Build a scheduled kernel; return what its machine code for a GPU uses, and why it is not worth a launch, if so."""
    # The wrapper's checks of its arguments take an eighth of a build, mostly LLVM's work. Runners pass the arguments that the
    # kernel was built for, and the kernel itself is the same without them.
    config = {**SPLIT_TAILS, "tirx.disable_assert": True}
    watch = LaunchWatch() if target.kind == "cuda" else None
    instruments = [] if watch is None else [watch]
    with (
        tvm.transform.PassContext(config=config, instruments=instruments),
        span("LLVM: a candidate", SpanKind.LLVM),
    ):
        library = build(mod, target=tvm_target(target))
    if watch is None:
        with span("link", SpanKind.LINK):
            export(library, output, work_dir, target)
        return {}, ""
    limits = limits_of_target(target)
    if obstacle := next(filter(None, (launch.obstacle(limits) for launch in watch.launches)), ""):
        return {}, f"{target.get('arch')} cannot launch it: {obstacle}"
    with span("nvcc and link", SpanKind.LINK):
        kernels = export(library, output, work_dir, target)
    facts = code_facts(limits, watch.launches, kernels)
    obstacle = next(filter(None, (kernel.obstacle() for kernel in kernels)), "")
    return {GPU_CODE: facts} if facts else {}, obstacle


def _space(params: dict[str, Any]) -> tuple[Target, DesignSpace]:
    task = _open.get(params["handle"])
    if task is None:
        raise InvariantError(f"task {params['handle']} has not been opened")
    return task


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


HANDLERS: Handlers = {"open_task": open_task, "config_space": config_space, "build_kernel": build_kernel}
