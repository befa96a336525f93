"""Child process: write records into MetaSchedule's JSON database, and read its records as configs.

Handlers:

- `add`: ``folder``, ``ir``, ``target``, ``records`` (``config``, ``space_key``, ``samples_sec`` of each) -> for each record null, or why
  it is left out. The database in the folder grows; TVM itself writes it.
- `read`: ``workload`` and ``traces`` as TVM wrote them, ``target`` -> ``key`` of the workload, ``space_key``, ``configs``: the config of each
  trace, or null; or ``refused``: why the workload has no configs here.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm_ffi import structural_equal

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.space.design_space import DesignSpace
from tunefarm_tuning.tvm.tasks.extract import as_kernel

_databases: dict[str, Any] = {}  # by folder: opening one reads it whole


def add(params: dict[str, Any]) -> list[str | None]:
    """Add a workload's records to the database in a folder; return for each why it is left out, if it is."""
    target = Target.from_json(params["target"])
    module = module_from_text(params["ir"])
    space = DesignSpace(module, target)
    folder = params["folder"]
    if folder not in _databases:
        _databases[folder] = ms.database.JSONDatabase(work_dir=folder)
    database = _databases[folder]
    args_info = ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True)
    refusals: list[str | None] = []
    for record in params["records"]:
        if record["space_key"] != space.config_space.key:
            refusals.append("space-changed")
            continue
        trace = _replayable_trace(space, module, Config.from_json(record["config"]))
        if trace is None:
            refusals.append("no-trace")
            continue
        workload = database.commit_workload(module)
        samples_sec = [float(sample) for sample in record["samples_sec"]]
        database.commit_tuning_record(
            ms.database.TuningRecord(trace, workload, samples_sec, tvm_target(target), args_info)
        )
        refusals.append(None)
    return refusals


def _replayable_trace(space: DesignSpace, module: Any, config: Config) -> Any | None:
    """Return the trace of a config that alone gives the config's kernel; None if there is none."""
    try:
        schedule, applied = space.apply(config)
        replayed = Schedule(module, debug_mask=0, error_render_level="none")
        schedule.trace.apply_to_schedule(replayed, remove_postproc=False)
    except Exception:  # noqa: BLE001  (TVM has many error types)
        return None
    return schedule.trace if applied == config and structural_equal(schedule.mod, replayed.mod) else None


def read(params: dict[str, Any]) -> dict[str, Any]:
    """Read a workload's traces as configs.

    Raises:
        InvalidInputError: ``database-of-other-tvm`` if this version of TVM cannot read the workload.
    """
    try:
        workload = ms.database.Workload.from_json(params["workload"])
    except Exception as error:
        raise InvalidInputError(
            f"this version of TVM cannot read it: {clean(str(error).strip(), 200)}",
            code="database-of-other-tvm",
        ) from error
    if ms.database.Workload(workload.mod).as_json()[0] != params["workload"][0]:
        raise InvalidInputError(
            "the workload's hash is another one with this version of TVM", code="database-of-other-tvm"
        )
    functions = list(workload.mod.functions.values())
    if len(functions) != 1 or not isinstance(functions[0], tirx.PrimFunc):
        return {"refused": "not-a-kernel"}
    kernel = as_kernel("main", functions[0], 1)
    if kernel.not_tunable is not None:
        return {"refused": "not-a-kernel"}
    try:
        space = DesignSpace(kernel.module, Target.from_json(params["target"]))
    except InvalidInputError:
        return {"refused": "cannot-be-scheduled"}
    return {
        "key": kernel.workload_key,
        "space_key": space.config_space.key,
        "configs": [_config(space, workload, trace) for trace in params["traces"]],
    }


def _config(space: DesignSpace, workload: Any, trace: Any) -> Any | None:
    try:
        record = ms.database.TuningRecord.from_json([trace, None, None, None], workload)
    except Exception:  # noqa: BLE001  (an instruction that this TVM has not)
        return None
    config = space.find_config(record.trace)
    return None if config is None else config.to_json()


HANDLERS: Handlers = {"add": add, "read": read}
