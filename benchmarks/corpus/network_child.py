"""Child process that takes a network the way of a user: import, extract the tasks, compile untuned.

Handlers: `import_network` first, then `extract` and `compile_untuned`; `convert` at any time. The process ends with the network, so that a crash in a
native library takes no other network with it.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from tunefarm_tuning import (
    compile,  # noqa: A004
    extract_tasks,
    import_model,
    import_tflite,
    parse_target,
)
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
    """Compile without records and compare: ``{"target", "path"}``.

    Returns:
        ``checks`` of the report, ``artifact_bytes``, ``warnings``.
    """
    path = Path(params["path"])
    compile(_imported(), params["target"], output=path, baseline=False)
    report = _report(path)
    return {
        "checks": report["checks"],
        "warnings": report.get("warnings", []),
        "artifact_bytes": path.stat().st_size,
    }


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
    "convert": convert,
}
