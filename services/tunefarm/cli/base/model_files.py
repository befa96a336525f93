"""The model files that a command is given: what their inputs are bound to, and which of them are refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm.cli.base.options import check_inputs, parse_shapes
from tunefarm.cli.base.output import Output
from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload.binding_text import parse_values
from tunefarm_tuning.workload.shapes import StoredShape

MODEL_ENDINGS = (".onnx", ".tflite")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A model's file, what its inputs are bound to, and its samples."""

    path: Path
    shapes: Mapping[str, StoredShape]
    values: Mapping[str, Any]
    samples: Sequence[Path]


def model_files(
    paths: Sequence[Path],
    *,
    shapes: Sequence[str] | None,
    values: Sequence[str] | None,
    inputs: Sequence[Path] | None,
    name: str | None,
    precisions: Sequence[str] = (),
) -> list[ModelFile]:
    """Return the files with their shapes, values and samples.

    A text that begins with a file's name or path and a colon (``a.onnx:x=1,3,224,224``, ``a.onnx:samples.npz``) is for that file
    alone, and comes before what is for all.

    Raises:
        InvalidInputError: If a file is missing (no-file), a text is wrong, or for a file that is not there (bad-shape, bad-value,
            bad-samples), int8 has no samples (samples-needed), or several files have one `name` (invalid-request).
    """
    for path in paths:
        if path.is_dir():
            raise InvalidInputError(
                f"{path}: this is a folder; give its files, like {path}/*.onnx", code="no-file"
            )
        if not path.is_file():
            raise InvalidInputError(f"{path}: there is no such file", code="no-file")
    if name is not None and len(set(paths)) > 1:
        raise InvalidInputError("--name is for a single file, but you gave several", code="invalid-request")
    _check_owners("--shape", "bad-shape", paths, shapes or ())
    _check_owners("--value", "bad-value", paths, values or ())
    named_samples = [str(path) for path in inputs or ()]
    _check_owners("--inputs", "bad-samples", paths, named_samples)
    needing = "int8" if "int8" in precisions else None
    return [
        ModelFile(
            path=path,
            shapes={**parse_shapes(_for_all(paths, shapes)), **parse_shapes(_for_file(path, shapes))},
            values={**parse_values(_for_all(paths, values)), **parse_values(_for_file(path, values))},
            samples=check_inputs(
                [Path(text) for text in _for_file(path, named_samples) or _for_all(paths, named_samples)],
                precision=needing,
                of=path.name if len(paths) > 1 else "the network",
            ),
        )
        for path in dict.fromkeys(paths)
    ]


def _names(path: Path) -> tuple[str, ...]:
    return (f"{path}:", f"{path.name}:")


def _for_all(paths: Sequence[Path], texts: Sequence[str] | None) -> list[str]:
    return [text for text in texts or () if not any(text.startswith(_names(path)) for path in paths)]


def _for_file(path: Path, texts: Sequence[str] | None) -> list[str]:
    prefixes = {
        text: next((name for name in _names(path) if text.startswith(name)), None) for text in texts or ()
    }
    return [text.removeprefix(prefix) for text, prefix in prefixes.items() if prefix is not None]


def _check_owners(option: str, code: str, paths: Sequence[Path], texts: Sequence[str]) -> None:
    """Refuse a text for a file that is not there; other colons are part of an input's name."""
    for text in _for_all(paths, texts):
        owner, colon, _ = text.partition("=")[0].rpartition(":")
        if colon and owner.endswith(MODEL_ENDINGS):
            known = ", ".join(path.name for path in paths)
            raise InvalidInputError(
                f"{option} {clean(text)}: there is no file {clean(owner)} here, only {clean(known, 300)}",
                code=code,
            )


@contextmanager
def noting_refusals(
    out: Output, path: Path, refused: list[dict[str, str]], *, of_several: bool
) -> Iterator[None]:
    """Catch what refuses the file during the block, so that other files go on: warn, and add name, code and message to `refused`."""
    from tunefarm.client import InvalidRequestError, ModelFailedError

    try:
        yield
    except (InvalidRequestError, ModelFailedError) as error:
        code, message = error.code, error.detail
    except TunefarmError as error:  # no model, or its weights in other files are not there
        code, message = error.code, error.message
    else:
        return
    if of_several:
        message = options_for(path, message)
    out.warning(f"{path}: {message}")
    refused.append({"name": path.name, "code": code, "message": message})


def options_for(path: Path, message: str) -> str:
    """Return a message whose options are for this file alone: without its name, they would be for every file."""
    return re.sub(r"--(shape|value) ", lambda option: f"{option[0]}{shlex.quote(f'{path.name}:')}", message)
