"""Writes artifacts. Equal contents give equal bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.container import LIBRARY, MANIFEST
from tunefarm_tuning.artifact.readme import readme_text
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.output_file import output_file
from tunefarm_tuning.records.record import TuningRecord

SUFFIX = ".tunefarm"
REPORT = "report.json"
RECORDS = "records.jsonl"
PROGRAMS = {
    "container.py": "container.py",
    "loader.py": "loader.py",
    "__main__.py": "command.py",
    # The loader's user has them on the module path: no other package has such names.
    **{
        f"tunefarm_{module}.py": f"{module}.py"
        for module in (
            *("arrays", "batches", "cuda_runtime", "entry", "machine_check", "model", "onednn_library"),
            *(
                "onnxruntime_parts",
                "other_shapes",
                "part_calls",
                "session",
                "sizes",
                "specialisations",
                "threads",
            ),
        )
    },
}
"""The modules of this package that are copied into an artifact: their names there, and here. Names there never change."""
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can store
_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 6 << 30
"""Linkers end at 2 GiB, and the parts are of a file of at most 2 GiB. Files of a child may be any number, and larger than the disk."""
_MOST_TEXT_BYTES = 32 << 20
_REGULAR_FILE = 0o100644 << 16
_UNIX = 3


def pack(
    output: Path,
    *,
    library: Path,
    manifest: Mapping[str, Any],
    report: Mapping[str, Any],
    records: Sequence[TuningRecord],
    parts: Sequence[Path] = (),
    check: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Write an artifact.

    The file appears at `output` complete or not at all. An existing file is replaced.

    Args:
        output: The file to write; its folder must exist.
        library: The compiled network.
        manifest: From `compiler.phases.manifest.make_manifest`.
        report: From `compiler.report.make_report`.
        records: The records whose kernels are in the library.
        parts: The ONNX models of the parts that ONNX Runtime runs, in order.
        check: Called with the complete file under a temporary name; if it raises, nothing appears at `output`.

    Returns:
        The manifest, with the checksums of the entries.

    Raises:
        InvalidModelError: ``too-large``.
    """
    here = Path(__file__).parent
    texts = {
        **{name: (here / source).read_text(encoding="utf-8") for name, source in PROGRAMS.items()},
        "README.md": readme_text(manifest),
        RECORDS: "".join(record.to_json() + "\n" for record in records),
        REPORT: _json_text(report),
    }
    stored = {LIBRARY: library, **{part_file(number): part for number, part in enumerate(parts)}}
    size_bytes = sum(path.stat().st_size for path in stored.values())
    texts_bytes = sum(map(len, texts.values()))
    if size_bytes > _MOST_BYTES or texts_bytes > _MOST_TEXT_BYTES:
        raise InvalidModelError(
            f"the artifact would take {size_bytes >> 20} MiB, and {texts_bytes >> 20} MiB of texts; the limits are {_MOST_BYTES >> 20} "
            f"and {_MOST_TEXT_BYTES >> 20} MiB",
            code="too-large",
        )
    entries = {name: _digest_file(path) for name, path in stored.items()}
    entries |= {name: _digest_bytes(text.encode()) for name, text in texts.items()}
    complete = {**manifest, "entries": entries}
    with output_file(output) as temporary:
        with temporary.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                # First, so that reading it needs only the head and the directory of a large file.
                archive.writestr(_info(MANIFEST), _json_text(complete))
                for name, path in stored.items():
                    with (
                        path.open("rb") as source,
                        archive.open(_info(name, stored=True), "w", force_zip64=True) as entry,
                    ):
                        shutil.copyfileobj(source, entry, _CHUNK_BYTES)
                for name in sorted(texts):
                    archive.writestr(_info(name), texts[name])
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(temporary)
    return complete


def part_file(number: int) -> str:
    """Return the name of a part's entry; the first part is number 0."""
    return f"part_{number + 1}.onnx"


def _info(name: str, *, stored: bool = False) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    info.external_attr = _REGULAR_FILE
    return info


def _json_text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _digest_file(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return {"sha256": digest.hexdigest(), "size_bytes": file.tell()}


def _digest_bytes(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
