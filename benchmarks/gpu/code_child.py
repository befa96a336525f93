"""Child process that builds kernels for a GPU, and says what their machine code asks for.

Handlers:

- `default`: ``ir``, ``target``, ``folder`` -> a list of one: the kernel with its default schedule: ``launches``, or ``failed``.
- `searched`: the same, ``count``, ``seed`` -> a list of the first proposals of a search that apply: also ``config`` and ``estimate``.

A launch has ``blocks``, ``threads``, ``static_bytes`` and ``dynamic_bytes``, what ``ptxas`` reports, and ``instructions`` (see
`machine_code.instructions`), if ``nvdisasm`` is here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from benchmarks.gpu.machine_code import instructions
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tuner.xgb import XGBTuner
from tunefarm_tuning.tvm.base.launches import LaunchWatch
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.cuda_compile import compile_cuda
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.gpu import with_gpu_schedules
from tunefarm_tuning.tvm.space.design_space import DesignSpace

_ASKED = 64


def default(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Build a kernel with its default schedule."""
    target = Target.from_json(params["target"])
    machine = tvm_target(target)
    module = with_gpu_schedules(module_from_text(params["ir"]), target, machine)
    return [built(module, target, Path(params["folder"]))]


def searched(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Build some of a search's first proposals, those that the scheduler takes."""
    target = Target.from_json(params["target"])
    try:
        space = _space(params["ir"], target)
    except InvalidInputError as error:
        return [{"failed": error.message}]
    candidates: list[dict[str, Any]] = []
    for config in XGBTuner(space.config_space, seed=params["seed"]).ask(_ASKED):
        if len(candidates) == params["count"]:
            break
        try:
            schedule, applied = space.apply(config)
        except InvalidInputError:
            continue
        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
        code = built(module, target, Path(params["folder"]))
        known = {"config": applied.to_json(), "estimate": estimate(space.config_space, applied)}
        candidates.append({**known, **code})
    return candidates


def estimate(space: ConfigSpace, config: Any) -> dict[str, Any]:
    """Return what the config space itself says of a config's kernel; empty where it knows no tiles."""
    tiling = space.gpu[config.sketch] if space.gpu else None
    row = space.row_of(config)
    if tiling is None or row is None:
        return {}
    use = tiling.use(row[None], space.sketches[config.sketch].knobs)
    told = {field.name: float(getattr(use, field.name)[0]) for field in fields(use)}
    return {**told, "registers": float(use.registers[0]), "tensor_cores": tiling.tensor_cores}


@lru_cache(maxsize=1)
def _space(ir: str, target: Target) -> DesignSpace:
    return DesignSpace(module_from_text(ir), target)


def built(module: tvm.IRModule, target: Target, folder: Path) -> dict[str, Any]:
    """Build a scheduled kernel, and say what its machine code asks for; ``failed``, if it does not build."""
    watch = LaunchWatch()
    try:
        with tvm.transform.PassContext(
            config={**SPLIT_TAILS, "tirx.disable_assert": True}, instruments=[watch]
        ):
            library = tvm.tirx.build(module, tvm_target(target))
        source = "".join(str(device.inspect_source("cuda")) for device in library.imports)
        code = compile_cuda(source.encode(), target, folder)
    except TunefarmError as error:
        return {"failed": error.message}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {clean(str(error), 300)}"}
    counts = _counted(code.data, folder)
    by_name = {resources.kernel: asdict(resources) for resources in code.kernels}
    return {
        "launches": [
            {**asdict(launch), **by_name[launch.kernel], "instructions": counts.get(launch.kernel, {})}
            for launch in watch.launches
        ]
    }


def _counted(cubin: bytes, folder: Path) -> Mapping[str, Mapping[str, int]]:
    with tempfile.NamedTemporaryFile(suffix=".cubin", dir=folder) as file:
        file.write(cubin)
        file.flush()
        return instructions(Path(file.name))


HANDLERS = {"default": default, "searched": searched}
