"""Manifests and files that make no sense: each is refused with a name, or is as good as any."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tunefarm_tuning.artifact.loader import ArtifactError, extract_library, load, read_manifest
from tunefarm_tuning.artifact_access import manifest_of
from tunefarm_tuning.errors import TunefarmError
from tunefarm_tuning.random_inputs import numpy_dtype
from tunefarm_tuning.task import TensorSpec
from tunefarm_tuning.toolchain import versions

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
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-1, 3),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["float32", "object", "V8", "llvm", "cuda", "\ud800", "\0"]),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "shape", "dtype", "kind", "lib.so"]), inner, max_size=3)
    ),
    max_leaves=4,
)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every part of a JSON value."""
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*way, key))


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    manifest: Any = copy.deepcopy(MANIFEST)
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from(list(places(manifest))))
        if not way:
            return draw(JSON)
        holder = manifest
        for key in way[:-1]:
            holder = holder[key]
        if draw(st.booleans()):
            holder[way[-1]] = draw(JSON)
        else:
            del holder[way[-1]]
        if not isinstance(manifest, dict) or not manifest:
            break
    return manifest


def write(path: Path, manifest: Any) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("lib.so", LIBRARY)
    return path


def with_change(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(MANIFEST), **changes}


SPEC = {"name": "x", "shape": [1], "dtype": "float32"}


@given(manifest=mutated())
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
