"""Child process for importing and extracting: closing it ends all the work.

The engine runs each stage of an import in a child of its own, under limits; this process only waits for them. Should it
be killed, they die with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefarm_tuning.frontend.extraction import extract_tasks
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.process.model_child import ImportLimits
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model


def import_file(params: dict[str, Any]) -> dict[str, Any]:
    """Import: ``{"path", "shapes", "memory_bytes", "timeout_sec"}`` -> `Model.to_json`."""
    limits = ImportLimits(
        memory_bytes=params["memory_bytes"],
        timeout_sec=params["timeout_sec"],
        cpu_sec=int(2 * params["timeout_sec"]) + 1,
    )
    return import_model(params["path"], shapes=params["shapes"], limits=limits).to_json()


def extract(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Extract: ``{"path", "model", "target", "precision", "memory_bytes"}`` -> a list of `TuningTask.to_json`."""
    tasks = extract_tasks(
        Model.from_json(params["model"], Path(params["path"])),
        Target.from_json(params["target"]),
        precision=params["precision"],
        limits=ChildLimits(memory_bytes=params["memory_bytes"]),
    )
    return [task.to_json() for task in tasks]


HANDLERS = {"import_file": import_file, "extract": extract}
