"""Put the weights that an ONNX model keeps in files beside it into the file itself.

PyTorch's exporter writes ``model.onnx`` and ``model.onnx.data``. A model is one file here: what is uploaded is what is hashed.
"""

from __future__ import annotations

import mmap
from importlib.util import find_spec
from pathlib import Path

from tunefarm_convert import FileFormat, file_format_of
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.output_file import output_file
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.model_child import ImportLimits, call_model_child
from tunefarm_tuning.process.sandbox import Access

_CONVERSION_CHILD = "tunefarm_tuning.frontend.onnx.conversion_child"
_LOCATION = b"\x0a\x08location\x12"
_FIELD = 0x6A
"""How protobuf writes the key under which the name of another file stands, and the number and kind of `TensorProto.external_data`."""


def keeps_weights_outside(path: Path) -> bool:
    """Return whether a file is an ONNX model that keeps weights in other files; False for what is no file that can be read."""
    if not path.is_file() or file_format_of(path) is not FileFormat.ONNX:
        return False
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(_LOCATION)
            while at >= 0:
                # Between the field and its content stands the length, of one byte or of two.
                if _FIELD in content[max(at - 3, 0) : max(at - 1, 0)]:
                    return True
                at = content.find(_LOCATION, at + 1)
    except (OSError, ValueError):  # an empty file has no map
        pass
    return False


def refuse_bad_paths(file: Path, path: Path) -> None:
    """Refuse a source that is not there, or that its ONNX file would replace.

    Raises:
        InvalidInputError: no-such-file or same-file.
    """
    if not file.is_file():
        raise InvalidInputError("the model file cannot be read: there is no such file", code="no-such-file")
    if path.exists() and file.samefile(path):
        raise InvalidInputError("the ONNX file would replace its source file", code="same-file")


def write_single_file(
    file: Path | str, path: Path | str, *, limits: ImportLimits | None = None
) -> tuple[str, ...]:
    """Write an ONNX model and the weights that it keeps in files beside it as one file.

    Args:
        file: The model. Only files in its folder and the folders below are read, none that is hidden; links are not followed.
        path: Path of the new file. An existing one is replaced only on success.
        limits: As for `import_model`.

    Returns:
        The names of the files beside it: the model says which these are, and a stranger's may name any.

    Raises:
        InvalidModelError: not-protobuf, external-data (a file that is missing, hidden, too short or elsewhere), too-large (2 GiB in all).
        InvalidInputError: no-such-file, not-installed, cannot-write, or same-file.
    """
    file, path = Path(file), Path(path)
    refuse_bad_paths(file, path)
    if file.is_symlink():
        raise InvalidModelError(
            f"{file.name} is a link: copy the model and its weights, not links, into one folder (cp -L)",
            code="external-data",
        )
    if find_spec("onnx") is None:
        raise InvalidInputError(
            f"{file.name} keeps weights in other files; to put them into it, onnx is needed, which is not installed: "
            "pip install 'tunefarm[engine]'",
            code="not-installed",
            missing=["onnx"],
        )
    with output_file(path) as temporary:
        names = call_model_child(
            "import",
            "reading the model's weights",
            _CONVERSION_CHILD,
            "single_file",
            {"path": str(file.absolute()), "to": str(temporary), "name": str(path)},
            limits or ImportLimits(),
            Access(reads=(file.absolute().parent,), writes=(temporary,)),
        )
    return tuple(clean(str(name), 100) for name in names)
