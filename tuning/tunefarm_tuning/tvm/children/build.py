"""Child process: config spaces, and kernels from configs.

A workload's IR is sent once (`open_task`); later calls name it by its handle.
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
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import check_can_build
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.device_code import export
from tunefarm_tuning.tvm.codegen.linker import link
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.space.design_space import DesignSpace

MAX_OPEN_TASKS = 128
"""More than a large network has; the oldest are forgotten beyond it, and the parent knows."""

_open: OrderedDict[str, tuple[Target, DesignSpace]] = OrderedDict()


def open_task(params: dict[str, Any]) -> None:
    """Take in a workload: ``{"handle", "ir", "target"}``."""
    target = Target.from_json(params["target"])
    check_can_build(target)
    _open[params["handle"]] = (target, DesignSpace(module_from_text(params["ir"]), target))
    while len(_open) > MAX_OPEN_TASKS:
        _open.popitem(last=False)


def config_space(params: dict[str, Any]) -> Any:
    """Return the config space of an open task: ``{"handle"}``."""
    return _space(params)[1].config_space.to_json()


def build_kernel(params: dict[str, Any]) -> dict[str, Any]:
    """Build one config: ``{"handle", "config", "output", "work_dir", "recent"}``.

    ``recent`` is the start of the paths of kernels built lately; their ends are their codes.

    Returns ``{"config", "code", "found", "build_sec", "apply_sec", "resident_bytes"}``: a digest of the scheduled kernel,
    and whether ``output`` is a kernel built lately; and ``"failure": [outcome, message]`` where it failed.
    """
    target, space = _space(params)
    config = Config.from_json(params["config"])
    output = Path(params["output"])
    started = time.monotonic()
    failure: list[str] | None = None
    code, found = "", False
    try:
        try:
            schedule, config = space.apply(config)
        finally:
            apply_sec = time.monotonic() - started
        mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
        code = f"{structural_hash(mod) % (1 << 64):016x}"
        found = link_or_copy(Path(f"{params['recent']}{code}"), output)
        try:
            if not found:
                _build(mod, target, output, Path(params["work_dir"]))
        except MemoryError:
            raise
        except TunefarmError as error:
            failure = [Outcome.BUILD_ERROR, error.message]
        except Exception as error:  # noqa: BLE001  (TVM's many; a candidate that does not build is data)
            failure = [Outcome.BUILD_ERROR, f"{type(error).__name__}: {clean(str(error), 500)}"]
    except InvalidInputError as error:
        failure = [Outcome.INSTANTIATION_ERROR, error.message]
    return {
        "config": config.to_json(),
        "code": code,
        "found": found,
        "build_sec": time.monotonic() - started,
        "apply_sec": apply_sec,
        "resident_bytes": _resident_bytes(),
        "failure": failure,
    }


def _build(mod: tvm.IRModule, target: Target, output: Path, work_dir: Path) -> None:
    # The wrapper's checks of its arguments are an eighth of a build (LLVM's work, most of it). Runners give a kernel the
    # arguments that it was built for, and the kernel proper is the same with and without.
    with tvm.transform.PassContext(config={**SPLIT_TAILS, "tirx.disable_assert": True}):
        library = build(mod, target=tvm_target(target))
    if target.kind == "cuda":
        export(library, output, work_dir, target)
        return

    def compile_(path: str, objects: list[str], **_: Any) -> None:
        link(objects, path, target)

    library.export_library(str(output), fcompile=compile_, workspace_dir=str(work_dir))


def _space(params: dict[str, Any]) -> tuple[Target, DesignSpace]:
    found = _open.get(params["handle"])
    if found is None:
        raise InvariantError(f"task {params['handle']} has not been opened")
    return found


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


HANDLERS = {one.__name__: one for one in (open_task, config_space, build_kernel)}
