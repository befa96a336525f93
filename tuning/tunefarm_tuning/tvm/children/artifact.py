"""Child process: an artifact as its user will run it, through its own loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.loader import ArtifactError, TunedModel, load
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.reference.comparison import compare_outputs

_loaded: tuple[str, TunedModel] | None = None


def check(params: dict[str, Any]) -> dict[str, Any]:
    """Run it and compare: ``{"path", "threads", "inputs", "expected", "rounding"}``."""
    model = _load(params)
    outputs = model(*load_arrays(params["inputs"]))
    expected = load_arrays(params["expected"])
    comparisons = compare_outputs(
        list(outputs), list(outputs.values()), expected, rounding=params["rounding"]
    )
    return {"comparisons": [one.to_json() for one in comparisons]}


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Run it: ``{"path", "threads", "inputs", "outputs"}``; writes the file of the outputs."""
    outputs = _load(params)(*load_arrays(params["inputs"]))
    save_arrays(Path(params["outputs"]), list(outputs.values()))
    return {"names": list(outputs)}


def time(params: dict[str, Any]) -> dict[str, Any]:
    """Time it: ``{"path", "threads", "repeat", "number"}``."""
    model = _load(params)
    samples = model.time(repeat=params["repeat"], number=params["number"])
    return {"samples_sec": samples, "threads": model.threads}


def _load(params: dict[str, Any]) -> TunedModel:
    global _loaded
    if _loaded is None or _loaded[0] != params["path"]:
        try:
            _loaded = (params["path"], load(params["path"], threads=params["threads"]))
        except ArtifactError as error:
            raise InvalidInputError(error.message, code=error.code) from error
    return _loaded[1]


HANDLERS = {"check": check, "run": run, "time": time}
