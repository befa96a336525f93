"""Malformed manifests and files are refused by name, or loaded correctly."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from json_mutations import mutated

from tunefarm_tuning.artifact.loader import ArtifactError, extract_library, load, read_manifest
from tunefarm_tuning.artifact.reading import manifest_of
from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.target.toolchain import versions
from tunefarm_tuning.workload.task import TensorSpec

LIBRARY = b"\x7fELF and no more"
MANIFEST: dict[str, Any] = {
    "format": "tunefarm-artifact",
    "format_version": 1,
    "name": "net",
    "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [1], "dtype": "int64"}],
    "target": {"kind": "llvm", "num-cores": 2},
    "target_key": "llvm",
    "machine": os.uname().machine,
    "cpu_features": [],
    "threads": 1,
    "versions": versions(),
    "entries": {"lib.so": {"sha256": hashlib.sha256(LIBRARY).hexdigest(), "size_bytes": len(LIBRARY)}},
}
KEYS = ("name", "shape", "dtype", "kind", "lib.so")


def write(path: Path, manifest: Any) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("lib.so", LIBRARY)
    return path


def with_change(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(MANIFEST), **changes}


SPEC = {"name": "x", "shape": [1], "dtype": "float32"}


@given(manifest=mutated(MANIFEST, *KEYS))
@example(manifest=with_change(versions={"apache-tvm": 1, "apache-tvm-ffi": []}))
@example(manifest=with_change(threads="many"))
@example(manifest=with_change(threads=float("inf")))
@example(manifest=with_change(cpu_features=[{}]))
@example(manifest=with_change(machine=["x86_64"]))
@example(manifest=with_change(target={"kind": "abacus"}))
@example(manifest=with_change(entries={"lib.so": {"sha256": "", "size_bytes": True}}))
@example(manifest=with_change(inputs={"name": SPEC}))
@example(manifest=with_change(inputs=[{**SPEC, "dtype": "object"}]))
@example(manifest=with_change(inputs=[{**SPEC, "shape": [10**30]}]))
@example(manifest=with_change(inputs=[{**SPEC, "shape": [1] * 70}]))
@example(manifest=with_change(inputs=[SPEC, SPEC]))
@example(manifest=with_change(inputs=[{**SPEC, "name": "\ud800"}]))
@example(manifest=with_change(format_version=[2]))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_manifest_is_refused_or_makes_sense(tmp_path: Path, manifest: Any) -> None:
    path = write(tmp_path / "net.tunefarm", manifest)
    try:
        read = manifest_of(path)
    except TunefarmError as error:
        code = error.code
    else:
        code = None
        for data in [*read["inputs"], *read["outputs"]]:
            spec = TensorSpec.from_json(data)
            spec.name.encode()
            numpy_dtype(spec.dtype)
            np.broadcast_to(np.zeros(()), spec.shape)  # as many dimensions, and as large, as numpy takes
    assert code in (None, "not-an-artifact", "damaged-artifact", "format-too-new")
    with pytest.raises(ArtifactError):  # for the library, at the latest
        load(path)


@given(data=st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_with_bytes_changed_is_refused_or_as_good(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "net.tunefarm"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(MANIFEST))
        archive.writestr("lib.so", LIBRARY * 2)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(
        bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    )
    output = tmp_path / "lib.so"
    output.unlink(missing_ok=True)
    for read in (lambda: read_manifest(path), lambda: extract_library(path, output)):
        try:
            read()
        except ArtifactError:
            pass
