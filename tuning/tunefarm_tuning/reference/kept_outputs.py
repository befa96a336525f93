"""Expected outputs that are kept for later compiles of the same file: ONNX Runtime computes them once.

An entry is a zip file of what the reference's child wrote and answered, under a digest of what that depends on. Children that touch
strangers' bytes may not write its folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from shutil import copyfileobj
from typing import Any

from tunefarm_tuning.core.kept_files import prune, usable_folder
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.workload.revisions import reference_revision

_SUFFIX = ".reference"
_REPLY = "reply.json"
_PREFIX = 16
_ENTRY_BYTES = 64 << 20
_ALL_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class KeptOutputs:
    """A folder of entries. Concurrency: any number of processes; an entry appears complete or not at all.

    Attributes:
        folder: Where they lie. It is made when the first one is kept.
    """

    folder: Path

    def restore(
        self, sha256: str, facts: Mapping[str, Any], files: Mapping[str, Path]
    ) -> dict[str, Any] | None:
        """Write the files of an entry; return the child's reply. None if nothing is kept, or it is damaged.

        Args:
            sha256: Of the model's file.
            facts: What the outputs depend on beside the file, this machine, this code and ONNX Runtime.
            files: Where each file goes, by a name that does not change.
        """
        path = self._path(sha256, facts)
        try:
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name in files:
                        with archive.open(name) as source, files[name].open("wb") as target:
                            copyfileobj(source, target)
                reply: dict[str, Any] = json.loads(archive.read(_REPLY))
            os.utime(path)  # it is used: see `prune`
        except (OSError, zipfile.BadZipFile, KeyError, ValueError):
            return None
        return reply

    def keep(
        self, sha256: str, facts: Mapping[str, Any], files: Mapping[str, Path], reply: Mapping[str, Any]
    ) -> None:
        """Keep the files that were written, unless they are large, and the reply. A folder that cannot be written keeps nothing."""
        written = {name: path for name, path in files.items() if path.exists()}
        folder = usable_folder(self.folder)
        if folder is None or sum(path.stat().st_size for path in written.values()) > _ENTRY_BYTES:
            return
        part = folder / f".{secrets.token_hex(8)}{_SUFFIX}"
        with suppress(OSError):
            with zipfile.ZipFile(part, "w", strict_timestamps=False) as archive:
                for name, path in written.items():
                    archive.write(path, name)
                archive.writestr(_REPLY, json.dumps(reply))
            part.replace(self._path(sha256, facts))
        part.unlink(missing_ok=True)
        prune(folder, (f"*{_SUFFIX}", f".*{_SUFFIX}"), limit_bytes=_ALL_BYTES)

    def forget(self, sha256: str) -> None:
        """Delete the entries of a file."""
        with suppress(OSError):
            for path in self.folder.glob(f"{sha256[:_PREFIX]}-*{_SUFFIX}"):
                path.unlink(missing_ok=True)

    def _path(self, sha256: str, facts: Mapping[str, Any]) -> Path:
        setting = {
            "code": reference_revision(),
            "machine": host_device_model(),
            "onnxruntime": metadata.version("onnxruntime"),
        }
        text = json.dumps({"file": sha256, **facts, **setting}, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return self.folder / f"{sha256[:_PREFIX]}-{digest}{_SUFFIX}"
