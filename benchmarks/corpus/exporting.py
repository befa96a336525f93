"""Export an architecture of torchvision, timm or transformers with random weights, in an interpreter that has PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from benchmarks.corpus.listing import Network
from benchmarks.corpus.wheels import UnavailableError
from benchmarks.search.machine import ROOT

EXPORT_SEC = 1800.0


class ExportRefusedError(Exception):
    """PyTorch or tunefarm refused an architecture.

    Attributes:
        code: The code of the error.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def exported_file(network: Network, cache: Path, torch_python: str) -> Path:
    """Return an architecture's ONNX file, exported if it is not in the cache.

    Raises:
        UnavailableError: If the interpreter lacks what an export needs.
        ExportRefusedError: If the export failed.
    """
    target = cache / "networks" / f"{network.name}.onnx"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    (shape,) = network.shapes.values()
    command = [torch_python, "-m", "benchmarks.corpus.torch_export", network.package.name, network.file]
    command += ["--output", str(target.absolute()), "--shape", *map(str, shape)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=EXPORT_SEC,
            check=False,
        )
    except OSError as error:
        raise UnavailableError(f"{torch_python} does not start: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise ExportRefusedError(f"no end after {EXPORT_SEC:g} s", "out-of-time") from error
    answer = _answer(done.stdout)
    if answer.get("code") == "not-installed":
        raise UnavailableError(answer["message"])
    if answer.get("code") != "":
        reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ExportRefusedError(answer.get("message", reason), answer.get("code", "crashed"))
    return target


def _answer(text: str) -> dict[str, str]:
    """Return the last line of what the interpreter printed; nothing if it died before."""
    lines = text.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
