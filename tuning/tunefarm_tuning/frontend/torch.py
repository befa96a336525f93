"""Convert `torch.export` programs to ONNX with PyTorch's own exporter, and compare the results with PyTorch's.

A file can be hashed, kept, and read by children and by workers that have no PyTorch; ONNX Runtime then is the
reference, as for every model (docs/adr/0021-torch-programs-become-onnx.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.output_file import output_file, writing
from tunefarm_tuning.core.untrusted_text import clean_message
from tunefarm_tuning.frontend.conversion import check_outputs
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.process.model_child import ImportLimits
from tunefarm_tuning.reference.single_run import run_in_onnxruntime
from tunefarm_tuning.workload.model import Model

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_OPSET = 18


def import_torch(
    program: ExportedProgram | Path | str,
    path: Path | str,
    *,
    trust: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    limits: ImportLimits | None = None,
) -> Model:
    """Convert a `torch.export` program to an ONNX file, and describe it.

    Args:
        program: Result of ``torch.export.export``, or a ``.pt2`` file of it.
        path: Path of the ONNX file. An existing file is replaced only on success.
        trust: Must be true for a file: loading it can run any code of its author with your rights.
        shapes: As for `import_model`.
        limits: As for `import_model`.

    Raises:
        InvalidModelError: With code untrusted-program, bad-program (PyTorch cannot load or convert it),
            conversion-differs (the ONNX file computes different results), or a code of `import_model`.
        InvalidInputError: If PyTorch or onnxscript is not installed (code not-installed), there is no such file, or
            ``path`` cannot be written (cannot-write).
    """
    if isinstance(program, Path | str):
        program = _load(Path(program), trust=trust)
    path = Path(path)
    with output_file(path) as temporary:
        data = _convert(program)
        with writing(path):
            temporary.write_bytes(data)
        model = import_model(temporary, shapes=shapes, limits=limits)
        _compare(program, model, limits or ImportLimits())
    return replace(model, path=path)


def _load(path: Path, *, trust: bool) -> ExportedProgram:
    if not trust:
        raise InvalidModelError(
            "loading a .pt2 file can run any code of its author; if you trust it, use trust=True or --trust",
            code="untrusted-program",
        )
    torch = _torch()
    if not path.is_file():
        raise InvalidInputError("the model file cannot be read: there is no such file", code="no-such-file")
    try:
        loaded: ExportedProgram = torch.export.load(str(path))
    except Exception as error:
        raise _bad("PyTorch cannot load the file as a torch.export program", error) from error
    return loaded


def _convert(program: ExportedProgram) -> bytes:
    torch = _torch()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.onnx.export(program, dynamo=True, opset_version=_OPSET, verbose=False)
            data: bytes = exported.model_proto.SerializeToString()
    except Exception as error:
        raise _bad("PyTorch cannot convert the program to ONNX", error) from error
    return data


def _compare(program: ExportedProgram, model: Model, limits: ImportLimits) -> None:
    """Run the program on the inputs that it was exported with, and the file in ONNX Runtime; the results must agree."""
    torch = _torch()
    if program.example_inputs is None:
        raise InvalidModelError(
            "the program has no example inputs to check its conversion; export it again, or import an ONNX "
            "file of it",
            code="bad-program",
        )
    leaves = torch.utils._pytree.tree_leaves  # noqa: SLF001  (torch has no public name for it)
    args, kwargs = program.example_inputs
    with torch.no_grad():
        try:
            results = leaves(program.module()(*args, **kwargs))
        except Exception as error:
            raise _bad(
                "PyTorch cannot run the program on the inputs that it was exported with", error
            ) from error
    inputs = _arrays(torch, leaves((args, kwargs)))
    if [list(array.shape) for array in inputs] != [list(spec.shape) for spec in model.inputs]:
        raise InvalidModelError(
            "the inputs of the exported program differ from those of its ONNX file: give shapes only if "
            "they are equal",
            code="conversion-differs",
        )
    check_outputs(model, run_in_onnxruntime(model, inputs, limits), _arrays(torch, results), "PyTorch")


def _arrays(torch: Any, values: Sequence[Any]) -> list[NDArray[Any]]:
    return [np.asarray(value.detach().cpu().numpy()) for value in values if isinstance(value, torch.Tensor)]


def _torch() -> Any:
    """Return PyTorch. No extra installs it: its wheel has gigabytes, and the right one depends on the machine."""
    try:
        import onnxscript  # noqa: F401
        import torch
        import torch.export
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"{error.name} is not installed, but needed for torch.export programs: pip install torch onnxscript",
            code="not-installed",
            missing=[str(error.name)],
        ) from error
    return torch


def _bad(failure: str, error: Exception) -> InvalidModelError:
    reason = clean_message(error)
    return InvalidModelError(f"{failure}: {reason}", code="bad-program")
