"""Child process: run an artifact by its own loader, as users do.

The artifact of the last call stays loaded. Arrays are files of `core.array_file`.

Handlers:

- `check`: ``path``, ``threads``, ``inputs``, ``expected``, ``widths`` (files; the last may be null or missing), ``rounding``,
  ``recorded`` (`InputSet.parts`) -> ``comparisons`` of the outputs, with the results of the parts that ONNX Runtime runs replayed,
  and of what these were given.
- `run`: ``path``, ``threads``, ``inputs``, ``outputs`` (files; the second is written) -> ``names`` of the outputs.
- `time`: ``path``, ``threads``, ``repeat``, ``number`` -> ``samples_sec``, ``threads``.

Raises:
    InvalidInputError: With the loader's own code, if the artifact cannot be loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.loader import ArtifactError, TunedModel
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.session_parts import SessionParts
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.reference.comparison import Comparison, compare_outputs
from tunefarm_tuning.reference.widths import load_widths

_loaded: tuple[str, TunedModel] | None = None


def check(params: dict[str, Any]) -> dict[str, Any]:
    """Run the artifact and compare its outputs with the expected ones."""
    model = _load(params)
    inputs, expected = load_arrays(params["inputs"]), load_arrays(params["expected"])
    rounding = params["rounding"]
    comparisons: list[Comparison] = []
    if (parts := model.parts) is not None:
        model(*inputs)  # it has to run with its own parts, too
        replayed = SessionParts()
        replayed.replay(params["recorded"], rounding)
        model.parts = replayed
    try:
        outputs = model(*inputs)
        comparisons += compare_outputs(
            list(outputs),
            list(outputs.values()),
            expected,
            rounding=rounding,
            widths=load_widths(params.get("widths")),
        )
    finally:
        model.parts = parts
    if parts is not None:
        comparisons += replayed.comparisons()
    return {"comparisons": [comparison.to_json() for comparison in comparisons]}


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Run the artifact and write its outputs."""
    outputs = _load(params)(*load_arrays(params["inputs"]))
    save_arrays(Path(params["outputs"]), list(outputs.values()))
    return {"names": list(outputs)}


def time(params: dict[str, Any]) -> dict[str, Any]:
    """Time the artifact."""
    model = _load(params)
    samples = model.time(repeat=params["repeat"], number=params["number"])
    return {"samples_sec": samples, "threads": model.threads}


def _load(params: dict[str, Any]) -> TunedModel:
    global _loaded
    if _loaded is None or _loaded[0] != params["path"]:
        try:
            _loaded = (params["path"], TunedModel(Path(params["path"]), threads=params["threads"]))
        except ArtifactError as error:
            raise InvalidInputError(error.message, code=error.code) from error
    return _loaded[1]


HANDLERS: Handlers = {"check": check, "run": run, "time": time}
