"""The artifact's file: its contents, equal bytes for equal contents, and the detection of damage."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tuning_records import RECORD

from tunefarm_tuning.artifact.loader import (
    KNOWN_CPU_FEATURES,
    ArtifactError,
    cpu_flags,
    extract_library,
    load,
    read_manifest,
)
from tunefarm_tuning.artifact.machine_check import check_gpu_of
from tunefarm_tuning.artifact.pack import pack
from tunefarm_tuning.artifact.reading import library_machine, manifest_of
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.records.record import load_records
from tunefarm_tuning.target.toolchain import versions

LIBRARY = b"\x7fELF and so on" * 1000
MANIFEST: dict[str, Any] = {
    "format": "tunefarm-artifact",
    "format_version": 1,
    "name": "net",
    "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}],
    "outputs": [{"name": "y\n", "shape": [1], "dtype": "float32"}],
    "target": {"kind": "llvm"},
    "target_key": "llvm",
    "machine": os.uname().machine,
    "cpu_features": [],
    "threads": 1,
    "versions": versions(),
}


def write(path: Path, **changes: Any) -> Path:
    library = path.parent / "built.so"
    library.write_bytes(LIBRARY)
    pack(path, library=library, manifest={**MANIFEST, **changes}, report={"latency": {}}, records=[RECORD])
    return path


def test_entries_and_their_checksums(tmp_path: Path) -> None:
    path = write(tmp_path / "net.tunefarm")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[0] == "manifest.json"
        assert set(names) == {
            "manifest.json", "lib.so", "report.json", "records.jsonl", "container.py", "loader.py", "__main__.py", "README.md",
            "tunefarm_arrays.py", "tunefarm_batches.py", "tunefarm_cuda_runtime.py", "tunefarm_machine_check.py", "tunefarm_model.py",
            "tunefarm_session.py", "tunefarm_threads.py", "tunefarm_entry.py", "tunefarm_other_shapes.py", "tunefarm_specialisations.py",
            "tunefarm_onednn_library.py", "tunefarm_onnxruntime_parts.py", "tunefarm_part_calls.py", "tunefarm_sizes.py",
        }  # fmt: skip
        manifest = json.loads(archive.read("manifest.json"))
        assert set(manifest["entries"]) == set(names) - {"manifest.json"}
        for name, entry in manifest["entries"].items():
            data = archive.read(name)
            assert entry == {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        assert archive.getinfo("lib.so").compress_type == zipfile.ZIP_STORED
        archive.extract("records.jsonl", tmp_path)
        readme = archive.read("README.md").decode()
    assert list(load_records(tmp_path / "records.jsonl")) == [RECORD]
    assert r"y\n: float32 [1]" in readme
    assert "pip install apache-tvm==" in readme
    assert manifest_of(path) == manifest


def test_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    first = write(tmp_path / "a.tunefarm").read_bytes()
    assert write(tmp_path / "b.tunefarm").read_bytes() == first
    assert write(tmp_path / "c.tunefarm", threads=2).read_bytes() != first


def test_a_failed_check_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "net.tunefarm"
    path.write_bytes(b"the old one")
    library = tmp_path / "built.so"
    library.write_bytes(LIBRARY)

    def refuse(candidate: Path) -> None:
        assert read_manifest(candidate)["name"] == "net"
        raise RuntimeError("wrong")

    with pytest.raises(RuntimeError):
        pack(path, library=library, manifest=MANIFEST, report={}, records=[], check=refuse)
    assert path.read_bytes() == b"the old one"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["built.so", "net.tunefarm"]


def test_the_library_comes_out_as_it_went_in(tmp_path: Path) -> None:
    extract_library(write(tmp_path / "net.tunefarm"), tmp_path / "out.so")
    assert (tmp_path / "out.so").read_bytes() == LIBRARY


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _not_a_zip(path: Path) -> None:
    path.write_bytes(b"hello")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _gone(path: Path) -> None:
    path.unlink()


def _other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "a")


def _rewrite(change: Callable[[dict[str, Any]], None], library: bytes = LIBRARY) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        manifest = read_manifest(path)
        change(manifest)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("manifest.json", json.dumps(manifest))
            archive.writestr("lib.so", library)

    return damage


def _flip_a_bit_of_the_library(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(LIBRARY) + 7] ^= 1
    path.write_bytes(bytes(data))


def _parts(manifest: dict[str, Any]) -> dict[str, Any]:
    return {"entry": "main", "inputs": manifest["inputs"], "outputs": manifest["outputs"]}


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_cut, "not-an-artifact"),
        (_not_a_zip, "not-an-artifact"),
        (_empty, "not-an-artifact"),
        (_gone, "not-an-artifact"),
        (_other_zip, "not-an-artifact"),
        (_rewrite(lambda m: m.update(format="other")), "not-an-artifact"),
        (_rewrite(lambda m: m.pop("inputs")), "damaged-artifact"),
        (_rewrite(lambda m: m.update(inputs=[{"name": 1}])), "damaged-artifact"),
        (_rewrite(lambda m: m["inputs"][0].update(shape=["a"])), "damaged-artifact"),
        (_rewrite(lambda m: m["outputs"][0].update(shape=[-1])), "damaged-artifact"),
        (_rewrite(lambda m: m.pop("target")), "damaged-artifact"),
        (_rewrite(lambda m: m.update(target=None)), "damaged-artifact"),
        (_rewrite(lambda m: m.pop("target_key")), "damaged-artifact"),
        (_rewrite(lambda m: m.update(versions=None)), "damaged-artifact"),
        (_rewrite(lambda m: m.update(cpu_features=["avx2", 1])), "damaged-artifact"),
        (_rewrite(lambda m: m.update(entries=[])), "damaged-artifact"),
        (_rewrite(lambda m: m.update(format_version=3)), "format-too-new"),
        (_rewrite(lambda m: m.update(parts=[{"file": "../lib.so"}])), "damaged-artifact"),
        (_rewrite(lambda m: m.update(parts=[{"file": "part_1.onnx"}])), "damaged-artifact"),
        (_rewrite(lambda m: m.update(specialisations=[])), "damaged-artifact"),
        (_rewrite(lambda m: m.update(specialisations=[{"entry": 1}])), "damaged-artifact"),
        (_rewrite(lambda m: m.update(specialisations=[{**_parts(m), "batches": [0]}])), "damaged-artifact"),
        (
            _rewrite(lambda m: m.update(specialisations=[_parts(m), {**_parts(m), "inputs": []}])),
            "damaged-artifact",
        ),
        (_flip_a_bit_of_the_library, "damaged-artifact"),
        (_rewrite(lambda m: None, library=b"another"), "damaged-artifact"),
        (_rewrite(lambda m: None, library=LIBRARY + b"!"), "damaged-artifact"),
    ],
)
def test_damage_has_a_name(tmp_path: Path, damage: Callable[[Path], None], code: str) -> None:
    path = write(tmp_path / "net.tunefarm")
    damage(path)
    with pytest.raises(ArtifactError) as caught:
        extract_library(path, tmp_path / "out.so")
    assert caught.value.code == code
    with pytest.raises(ArtifactError):
        load(path)


def test_the_engine_has_its_own_error_for_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        manifest_of(tmp_path / "missing.tunefarm")
    assert caught.value.code == "not-an-artifact"


def test_another_version_of_tvm_is_refused_with_the_command_to_fix_it(tmp_path: Path) -> None:
    path = write(tmp_path / "net.tunefarm", versions={"apache-tvm": "0.1", "apache-tvm-ffi": "0.2"})
    with pytest.raises(ArtifactError, match=r"pip install apache-tvm==0\.1 apache-tvm-ffi==0\.2") as caught:
        load(path)
    assert caught.value.code == "version-mismatch"


def test_another_machine_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "net.tunefarm", machine="sparc64")
    with pytest.raises(ArtifactError, match="is for sparc64") as caught:
        load(path)
    assert caught.value.code == "wrong-machine"


@pytest.mark.skipif(not cpu_flags(), reason="the system does not name its CPU's features")
def test_a_cpu_that_lacks_a_feature_is_refused(tmp_path: Path) -> None:
    lacking = next(name for name, flag in KNOWN_CPU_FEATURES.items() if flag not in cpu_flags())
    path = write(tmp_path / "net.tunefarm", cpu_features=[lacking, "of-no-matter"])
    with pytest.raises(ArtifactError, match=f"this CPU lacks {lacking}") as caught:
        load(path)
    assert caught.value.code == "wrong-machine"


@pytest.mark.parametrize(("compiled", "here", "fits"), [
    ("sm_90", "9.0", True), ("sm_90a", "9.0", True), ("sm_80", "8.6", False), ("sm_90", "10.0", False), ("sm_90", None, True),
])  # fmt: skip
def test_a_gpu_of_another_architecture_is_refused_and_both_are_named(
    compiled: str, here: str | None, fits: bool
) -> None:
    manifest = {"target": {"kind": "cuda", "arch": compiled}, "target_key": f"cuda -arch={compiled}"}
    if fits:
        check_gpu_of(manifest, here)
        return
    with pytest.raises(ArtifactError, match=f"{compiled}.*the GPU here is sm_") as caught:
        check_gpu_of(manifest, here)
    assert caught.value.code == "wrong-architecture"


def test_an_elf_header_names_its_machine(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    for number, name in ((62, "x86_64"), (183, "aarch64"), (9999, None)):
        path.write_bytes(b"\x7fELF\x02\x01" + bytes(12) + number.to_bytes(2, "little"))
        assert library_machine(path) == name
    path.write_bytes(b"short")
    assert library_machine(path) is None
