"""Child process that takes a network the way of a user: import, extract the tasks, compile untuned.

Handlers: `import_network` first, then `extract`, `compile_untuned` and `products`; `convert` at any time. The process ends with the network, so that a crash in a
native library takes no other network with it.
"""

from __future__ import annotations

import contextlib
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import tvm

from tunefarm_tuning import (
    compile,  # noqa: A004
    extract_tasks,
    import_model,
    import_tflite,
    parse_target,
)
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import NoDefaultSchedule, packed_default_schedule
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.model import Model

_model: Model | None = None


def import_network(params: dict[str, Any]) -> dict[str, Any]:
    """Import a network: ``{"path", "shapes", "values"}``.

    Returns:
        ``inputs`` (specifications), ``operators`` (counts), ``params``.
    """
    global _model
    bound = {"shapes": params["shapes"]} | ({"values": params["values"]} if params["values"] else {})
    _model = import_model(Path(params["path"]), **bound)
    return {
        "inputs": [spec.to_json() for spec in _model.inputs],
        "operators": dict(_model.operators),
        "params": _model.num_params,
    }


def extract(params: dict[str, Any]) -> int:
    """Return the number of tasks: ``{"target"}``."""
    return len(extract_tasks(_imported(), parse_target(params["target"])))


def compile_untuned(params: dict[str, Any]) -> dict[str, Any]:
    """Compile without records and compare: ``{"target", "path"}``, and if wanted ``device`` (a `RemoteDevice`) and ``goal_sec``.

    Returns:
        ``checks`` of the report, ``artifact_bytes``, ``warnings``.
    """
    path = Path(params["path"])
    device = params.get("device") and RemoteDevice.from_json(params["device"])
    goal_sec = params.get("goal_sec")
    compile(_imported(), params["target"], output=path, device=device, baseline=False, goal_sec=goal_sec)
    report = _report(path)
    return {
        "checks": report["checks"],
        "warnings": report.get("warnings", []),
        "artifact_bytes": path.stat().st_size,
    }


def products(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the kernels that multiply, under their default schedules: ``{"target", "instructions"}``, the latter regular expressions.

    Returns:
        Of each its ``name``, and the ``instructions`` that its assembly has.
    """
    model, target = _imported(), parse_target(params["target"])
    module = load_relax(model.path, model.binding, target).module
    kernels = []
    for workload in primfunc_workloads(module):
        if not re.search("conv|matmul|byte|lstm|gru", workload.name):
            continue
        func = module[workload.name]
        with contextlib.suppress(NoDefaultSchedule):  # a recurrence is written as it runs
            func = packed_default_schedule(func, target).func
        func = func.with_attr("global_symbol", "main")
        with tvm_target(target), tvm.transform.PassContext(config=SPLIT_TAILS):
            built = tvm.tirx.build(tvm.IRModule({"main": func}), target=tvm_target(target))
        assembly = str(built.inspect_source("asm"))
        has = [name for name in params["instructions"] if re.search(rf"^\t{name}\t", assembly, re.MULTILINE)]
        kernels.append({"name": workload.name, "instructions": has})
    return kernels


def convert(params: dict[str, Any]) -> None:
    """Write the ONNX model that a TFLite file is read as: ``{"path", "to"}``."""
    import_tflite(Path(params["path"]), Path(params["to"]))


def _report(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return dict(json.loads(archive.read("report.json")))


def _imported() -> Model:
    if _model is None:
        raise RuntimeError("no network is imported")
    return _model


HANDLERS = {
    "import_network": import_network,
    "extract": extract,
    "compile_untuned": compile_untuned,
    "products": products,
    "convert": convert,
}
