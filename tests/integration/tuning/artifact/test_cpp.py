"""The C++ example, built with this system's compiler, computes what the Python loader computes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_mutations import mutated
from plain_artifacts import plain_artifact
from repository import EXAMPLES
from signed_farm import resigned, with_payload

from tunefarm_app.identity.signing import SigningKey, create_signing_key
from tunefarm_app.identity.statements import Provenance, artifact_statement
from tunefarm_tuning import compile as compile_model
from tunefarm_tuning import import_model
from tunefarm_tuning.artifact.loader import ArtifactError, extract_library, load

COMPILER = os.environ.get("CXX") or next(
    (name for name in ("c++", "g++", "clang++") if shutil.which(name)), None
)


needs_compiler = pytest.mark.skipif(
    COMPILER is None or shutil.which("make") is None,
    reason="there is no C++ compiler or no make here (the C++ example needs them)",
)


def _has_openssl() -> bool:
    if COMPILER is None:
        return False
    text = "#include <openssl/evp.h>\n"
    command = [COMPILER, "-E", "-x", "c++", "-"]
    return subprocess.run(command, input=text, text=True, capture_output=True, check=False).returncode == 0


needs_openssl = pytest.mark.skipif(
    not _has_openssl() or shutil.which("make") is None,
    reason="there is no C++ compiler, make or header of OpenSSL here (the C++ example verifies with them)",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    makefile = EXAMPLES / "cpp" / "Makefile"
    build = run(
        "make", "-f", str(makefile), f"VPATH={makefile.parent}", f"PYTHON={sys.executable}", f"CXX={COMPILER}",
        "CXXFLAGS=-O0 -Wall -Werror", folder=folder,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr
    return folder / "run_artifact"


@pytest.fixture(scope="module")
def networks() -> Any:
    spec = importlib.util.spec_from_file_location("examples_tiny_convnet", EXAMPLES / "tiny_convnet.py")
    assert spec is not None
    assert spec.loader is not None
    networks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(networks)
    return networks


@needs_compiler
def test_it_says_what_the_loader_says(program: Path, networks: Any, tmp_path: Path) -> None:
    artifact = plain_artifact(networks.build_tiny_mlp(batch=4), tmp_path / "net.tunefarm")
    extract_library(artifact, tmp_path / "lib.so")
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    x.tofile(tmp_path / "x.bin")
    done = run(program, "lib.so", "x.bin", "4x64", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("output_0.bin: float32 [4, 10] ")
    output = np.fromfile(tmp_path / "output_0.bin", np.float32).reshape(4, 10)
    np.testing.assert_array_equal(output, load(artifact)(x)["y"])
    for arguments, code, message in (
        (["lib.so", "x.bin"], 2, "usage: "),
        (["--entry", "main"], 2, "usage: "),
        (["lib.so", "x.bin", "4x65"], 1, "error: x.bin does not hold 1040 bytes"),
        (["lib.so", "x.bin", "8x32"], 1, "error: "),
        (["none.so", "x.bin", "4x64"], 1, "error: "),
        (["--entry", "main_9", "lib.so", "x.bin", "4x64"], 1, "error: the library has no entry main_9"),
    ):
        done = run(program, *arguments, folder=tmp_path)
        assert (done.returncode, done.stderr.startswith(message)) == (code, True), done


@pytest.mark.exhaustive
@needs_compiler
def test_it_calls_each_entry_of_an_artifact_of_several_shapes(
    program: Path, networks: Any, tmp_path: Path
) -> None:
    onnx.save(networks.build_tiny_mlp(batch="batch"), tmp_path / "net.onnx")
    model = import_model(tmp_path / "net.onnx", shapes={"x": "2|4,64"})
    artifact = compile_model(model, output=tmp_path / "net", baseline=False)
    extract_library(artifact.path, tmp_path / "lib.so")
    manifest = artifact.manifest
    entries = {item["inputs"][0]["shape"][0]: item["entry"] for item in manifest["specialisations"]}
    entries[7] = manifest["other_shapes"]["entry"]
    assert len(set(entries.values())) == 3
    for batch, entry in entries.items():
        x = np.random.default_rng(batch).standard_normal((batch, 64)).astype(np.float32)
        x.tofile(tmp_path / "x.bin")
        done = run(program, "--entry", entry, "lib.so", "x.bin", f"{batch}x64", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        output = np.fromfile(tmp_path / "output_0.bin", np.float32).reshape(batch, 10)
        np.testing.assert_allclose(output, load(artifact.path, threads=1)(x)["y"], rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def signed_folder(networks: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact, its envelope, the signing key and its public keys, and an input."""
    folder = tmp_path_factory.mktemp("signed")
    artifact = plain_artifact(networks.build_tiny_mlp(batch=4), folder / "net.tunefarm")
    create_signing_key(folder / "key.pem")
    provenance = Provenance(
        job_id="job", asked={}, toolchain="", devices=(), materials=(), records_sha256=None, versions={}, began_at=1.0, ended_at=2.0
    )  # fmt: skip
    sha256 = hashlib.sha256(artifact.read_bytes()).hexdigest()
    statement = artifact_statement(artifact.name, sha256, provenance)
    (folder / "net.tunefarm.intoto.jsonl").write_text(SigningKey.read(folder / "key.pem").sign(statement))
    np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32).tofile(folder / "x.bin")
    return folder


@pytest.fixture
def signed(signed_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(signed_folder, tmp_path / "signed"))


RUN = ("net.tunefarm", "x.bin", "4x64")


@needs_openssl
def test_it_runs_what_it_has_verified(program: Path, signed: Path) -> None:
    done = run(program, "--verify-key", "key.pem.pub", *RUN, folder=signed)
    assert done.returncode == 0, done.stderr
    output = np.fromfile(signed / "output_0.bin", np.float32).reshape(4, 10)
    model = load(signed / "net.tunefarm", verify_key=signed / "key.pem.pub")
    x = np.fromfile(signed / "x.bin", np.float32).reshape(4, 64)
    np.testing.assert_array_equal(output, model(x)["y"])
    done = run(program, *RUN, folder=signed, TUNEFARM_VERIFY_KEY="key.pem.pub")
    assert done.returncode == 0, done.stderr


def _alter(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def _payload(folder: Path, change: Callable[[Any], None], key: str | None = None) -> None:
    path = folder / "net.tunefarm.intoto.jsonl"
    text = path.read_text()
    path.write_text(with_payload(text, change) if key is None else resigned(text, folder / key, change))


def _other_key(folder: Path) -> None:
    create_signing_key(folder / "other.pem")
    _payload(folder, lambda _: None, "other.pem")


FORGERIES: dict[str, Callable[[Path], object]] = {
    "no-envelope": lambda folder: (folder / "net.tunefarm.intoto.jsonl").unlink(),
    "bad-envelope": lambda folder: (folder / "net.tunefarm.intoto.jsonl").write_text("[" * 100_000),
    "wrong-subject": lambda folder: _alter(folder / "net.tunefarm", b"x"),
    "bad-signature": lambda folder: _payload(folder, lambda statement: statement.update(predicate={})),
    "wrong-predicate": lambda folder: _payload(
        folder, lambda statement: statement.update(predicateType="urn:tunefarm:backup:v1"), "key.pem"
    ),
    "unknown-key": _other_key,
    "bad-verify-key": lambda folder: (folder / "key.pem.pub").write_bytes(b"none"),
}


@needs_openssl
@pytest.mark.parametrize("code", FORGERIES)
def test_it_refuses_what_the_loader_refuses(program: Path, signed: Path, code: str) -> None:
    FORGERIES[code](signed)
    done = run(program, "--verify-key", "key.pem.pub", *RUN, folder=signed)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"({code})\n"), done.stderr
    assert not (signed / "output_0.bin").exists()
    with pytest.raises(ArtifactError) as refused:
        load(signed / "net.tunefarm", verify_key=signed / "key.pem.pub")
    assert refused.value.code == code


@needs_openssl
@pytest.mark.parametrize("first", ["good", "bad"])
def test_two_signatures_of_one_key_are_none(program: Path, signed: Path, first: str) -> None:
    """Else each reader would take another one."""
    path = signed / "net.tunefarm.intoto.jsonl"
    document = json.loads(path.read_text())
    [good] = document["signatures"]
    bad = {**good, "sig": "AAAA" + good["sig"][4:]}
    document["signatures"] = [good, bad] if first == "good" else [bad, good]
    path.write_text(json.dumps(document))
    done = run(program, "--verify-key", "key.pem.pub", *RUN, folder=signed)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("(bad-envelope)\n"), done.stderr
    with pytest.raises(ArtifactError) as refused:
        load(signed / "net.tunefarm", verify_key=signed / "key.pem.pub")
    assert refused.value.code == "bad-envelope"


@pytest.mark.exhaustive
@needs_openssl
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_malformed_envelopes_do_not_crash_it(program: Path, signed: Path, data: st.DataObject) -> None:
    path = signed / "net.tunefarm.intoto.jsonl"
    text = path.read_text()
    document = data.draw(mutated(json.loads(text), "payload", "payloadType", "signatures", "keyid", "sig"))
    try:
        path.write_text(json.dumps(document))
        done = run(program, "--verify-key", "key.pem.pub", *RUN, folder=signed)
    finally:
        path.write_text(text)
    assert done.returncode in (0, 1), done
    assert done.returncode == 0 or done.stderr.startswith("error: ")


@pytest.mark.exhaustive
@needs_compiler
def test_without_openssl_it_refuses_to_verify(signed: Path, tmp_path: Path) -> None:
    makefile = EXAMPLES / "cpp" / "Makefile"
    build = run(
        "make", "-f", str(makefile), f"VPATH={makefile.parent}", f"PYTHON={sys.executable}", f"CXX={COMPILER}",
        "OPENSSL=", "CXXFLAGS=-O0 -Wall -Werror", folder=tmp_path,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr
    done = run(tmp_path / "run_artifact", "--verify-key", "key.pem.pub", *RUN, folder=signed)
    assert (done.returncode, "built without OpenSSL" in done.stderr) == (1, True)


def run(*command: Path | str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0", **variables},
    )  # fmt: skip
