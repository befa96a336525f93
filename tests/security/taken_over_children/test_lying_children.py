"""A child that was taken over, and answers with lies.

No name that it tells leads its parent, or the next child, to another file. No error that it states decides about devices or leases, and no
answer is too much for its parent.
"""

from __future__ import annotations

import json
import zipfile
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from app_farm import farm_settings, make_farm
from lying import lying

from tunefarm_app.engines.interface import ImportedModel
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.steps.failure_policy import Action, action_for
from tunefarm_db.values import ModelState
from tunefarm_tuning.artifact.container import FORMAT, LIBRARY, MANIFEST
from tunefarm_tuning.artifact.pack import pack
from tunefarm_tuning.compiler.kernel_validation import KernelValidator
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession, KernelInfo
from tunefarm_tuning.compiler.verify import verify
from tunefarm_tuning.core.errors import BROKE_PROTOCOL, InvalidModelError, InvariantError, TunefarmError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.core.spans import recording
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.gpu.state import BUSY
from tunefarm_tuning.measure.interfaces import Failure, told_facts
from tunefarm_tuning.process import ChildCrashed, ChildLimits, call_in_child
from tunefarm_tuning.process.model_child import ImportLimits
from tunefarm_tuning.reference.samples import check_samples
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TensorSpec

CPU = parse_target("llvm -mcpu=x86-64")
SPEC = TensorSpec(name="x", shape=(1,), dtype="float32")
LOADED = {
    "entries": [], "kernels": [], "alternatives": [], "cpu_features": [], "storage": {}, "warnings": [], "llvm": "19",
}  # fmt: skip
"""What a compiler's child answers of a network without kernels."""


@pytest.fixture
def model(tmp_path: Path) -> Model:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"the stranger's own")
    return Model(path=path, sha256="00", inputs=(SPEC,), outputs=(), operators=(), opset=17, num_params=0)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the farm's, which its process may read."""
    path = tmp_path / "signing-key.pem"
    path.write_text("secret")
    return path


def test_a_reader_of_samples_lets_no_other_child_read_a_file(
    model: Model, secret: Path, tmp_path: Path
) -> None:
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=np.zeros(1, np.float32))
    lies = {"write_feeds": {"value": {"sets": 1, "used": [0], "fits": 0, "feeds": [str(secret), "/"]}}}
    with lying(lies) as granted, suppress(TunefarmError, ValueError):
        check_samples(samples, model, limits=ImportLimits())
    assert {path for access in granted for path in access["reads"]}.isdisjoint({str(secret), "/"})


def test_a_compiler_has_no_file_of_ours_packed(model: Model, secret: Path, scratch: Path) -> None:
    lies = {"load": {"value": {**LOADED, "parts": [str(secret)]}}}
    with lying(lies), closing(CompileSession(model, CPU, scratch, CompileLimits())) as session:
        assert session.load().parts == ()


def test_a_compiler_has_no_file_of_ours_deleted(model: Model, scratch: Path, tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"somebody else's")
    outside = str(library.with_suffix(""))
    lies = {
        "load": {"value": LOADED},
        "connect": {"value": {"device_exists": True, "threads": 1, "libraries": {}}},
        "run_untuned": {"value": {"calls_sec": [1.0]}},
    }
    kernel = KernelInfo(workload_key=outside, names=(outside,), weight=1, args=())
    device = DeviceRun(None, kind="cpu", threads=1, limits=ChildLimits(), folder=scratch)
    with (
        lying(lies),
        closing(CompileSession(model, CPU, scratch, CompileLimits())) as session,
        closing(device),
    ):
        validator = KernelValidator(session, device, scratch, seed=0, limits=CompileLimits())
        assert validator.time_fixed(kernel, "an alternative", runs=1) == 1.0
    assert library.exists()


def test_an_artifact_has_nothing_written_beside_the_scratch_folder(model: Model, tmp_path: Path) -> None:
    outside = tmp_path / "planted"
    shapes = {"inputs": [SPEC.to_json()], "outputs": [SPEC.to_json()]}
    manifest = {
        "format": FORMAT,
        "format_version": 2,
        "entries": {LIBRARY: {"sha256": "", "size_bytes": 0}},
        "model": {"sha256": model.sha256},
        "target": CPU.to_json(),
        "target_key": CPU.key,
        "versions": {},
        "threads": 1,
        "specialisations": [{"entry": str(outside), **shapes}],
        **shapes,
    }
    artifact = tmp_path / "stranger.tunefarm"
    with zipfile.ZipFile(artifact, "w") as archive:
        archive.writestr(MANIFEST, json.dumps(manifest))
    with lying({}) as granted, suppress(TunefarmError, TypeError):
        verify(artifact, model)
    assert granted, "the manifest was read, and the reference was asked"
    assert not outside.exists()


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("DeviceLostError", BROKE_PROTOCOL),
        ("DeviceLostError", "impossible-times"),
        ("DeviceLostError", BUSY),
        ("LeaseLostError", "lease-lost"),
        ("CancelledError", "cancelled"),
        ("TransientError", "disk-full"),
        ("TransientError", "no-signing-key"),
    ],
)
def test_a_compiler_blames_no_device_and_has_no_step_wait_for_ever(
    model: Model, scratch: Path, kind: str, code: str
) -> None:
    stated = {"kind": kind, "code": code, "message": "the device sent a call", "fields": {"misses": 9}}
    with (
        lying({"load": {"error": stated}}),
        closing(CompileSession(model, CPU, scratch, CompileLimits())) as session,
        pytest.raises(InvariantError) as caught,
    ):
        session.load()
    assert action_for(caught.value) is Action.RETRY_FAULT


def lie(**lie: object) -> object:
    with lying({"ask": lie}):
        return call_in_child("any", "ask", {}, timeout_sec=120.0)


def test_texts_of_an_error_are_cleaned_and_cut() -> None:
    stated = {
        "kind": "InvalidModelError",
        "code": "\x1b[2J",
        "message": "\x1b[2J" + "x" * 1_000_000,
        "fields": {"operator": "\x1b[2J", "nested": [{"\x00": "\x00"}]},
    }
    with pytest.raises(InvalidModelError) as caught:
        lie(error=stated)
    assert caught.value.code == InvalidModelError.default_code
    assert json.dumps(caught.value.to_json()).isprintable()
    assert len(caught.value.message) < 10_000
    with pytest.raises(InvalidModelError) as caught:
        lie(error={**stated, "fields": {"operator": "x" * 1_000_000}})
    assert caught.value.fields == {}


@pytest.mark.parametrize(
    ("raw", "times"),
    [
        ("[", 1_000_000),
        ("[],", 50_000_000),
        ('{"error":{"kind":"InvalidModelError","fields":{"self":1}}}', 1),
        ('{"error":[]}', 1),
        ("[]", 1),
        ('{"value":1,"spans":[["x","llvm",1e999,0,1]]}', 1),
        ('{"value":1,"spans":[["x","llvm",0,0,1e999]]}', 1),
        ('{"value":1,"spans":[["x","no kind",0,0,1]]}', 1),
    ],
)
def test_an_answer_that_is_none_ends_the_child_alone(raw: str, times: int) -> None:
    with recording() as log, pytest.raises(ChildCrashed):
        lie(raw=raw, times=times)
    assert all(span.name.isprintable() for span in log.spans)


def test_spans_have_names_for_people() -> None:
    with recording() as log:
        assert lie(raw='{"value":1,"spans":[["\\u0000\\u001b","llvm",0,0,1]]}') == 1
    assert all(span.name.isprintable() for span in log.spans)


def test_a_failure_and_facts_of_a_candidate_stay_small() -> None:
    """They are stored with each trial."""
    assert len(Failure(Outcome.RUN_ERROR, "x" * 1_000_000).message) < 20_000
    assert told_facts({"gpu": [1, 2]}) == {"gpu": [1, 2]}
    assert told_facts({"gpu": "x" * 1_000_000}) == {}


def test_files_larger_than_a_disk_are_not_packed(tmp_path: Path) -> None:
    """A child writes them in no time: they are holes."""
    library = tmp_path / "model.so"
    with library.open("wb") as file:
        file.truncate(1 << 40)
    versions = {"apache-tvm": "0", "apache-tvm-ffi": "0"}
    manifest = {
        "name": "net",
        "target_key": CPU.key,
        "versions": versions,
        "inputs": [],
        "outputs": [],
        "target": CPU.to_json(),
    }
    with pytest.raises(InvalidModelError) as caught:
        pack(tmp_path / "net.tunefarm", library=library, manifest=manifest, report={}, records=[])
    assert caught.value.code == "too-large"
    assert list(tmp_path.iterdir()) == [library]


class Verbose(ReplayEngine):
    """Its imports tell more than a page could show."""

    def import_model(self, path: Path, *args: Any, **kwargs: Any) -> ImportedModel:
        imported = super().import_model(path, *args, **kwargs)
        return replace(imported, model=replace(imported.model, operators=(("x" * (9 << 20), 1),)))


def test_a_description_of_a_model_has_a_limit(tmp_path: Path) -> None:
    farm = make_farm(farm_settings(tmp_path), Verbose())
    refused = farm.ready_model()
    farm.services.close()
    assert (refused.state, (refused.error or {}).get("code")) == (ModelState.FAILED, "too-large")
