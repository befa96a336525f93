"""What stays known of this machine when TVM's compiler is removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunefarm_tuning.core.errors import UnknownTargetError
from tunefarm_tuning.target.host import num_cores
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.trimmed import kept_target, trim, tvm_folder

TARGET = Target.from_json({"kind": "llvm", "mcpu": "cortex-a72", "mattr": ["-aes"], "num-cores": 77})


@pytest.fixture
def tvm(tmp_path: Path) -> Path:
    """A folder as TVM's, with a compiler of 1,000 bytes."""
    for folder in ("lib", "3rdparty/cutlass"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lib" / "libtvm_compiler.so").write_bytes(bytes(1000))
    (tmp_path / "lib" / "libtvm_runtime.so").write_bytes(bytes(10))
    (tmp_path / "3rdparty" / "cutlass" / "gemm.h").write_bytes(bytes(24))
    return tmp_path


def test_the_target_stays_known_and_the_cores_are_counted_anew(tvm: Path) -> None:
    assert kept_target(tvm) is None, "the compiler is there to be asked"
    assert trim(tvm, TARGET) == 1024
    assert sorted(path.name for path in tvm.rglob("*") if path.is_file()) == [
        "libtvm_runtime.so",
        "tunefarm_host_target.json",
    ]
    assert kept_target(tvm) == Target.from_json({**TARGET.to_json(), "num-cores": num_cores()})
    assert trim(tvm, TARGET) == 0, "a second time does no harm"


def test_a_newer_kernel_of_the_system_may_name_more_features(tvm: Path) -> None:
    trim(tvm, TARGET)
    file = tvm / "lib" / "tunefarm_host_target.json"
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "features": kept["features"][1:]}))
    assert kept_target(tvm) is not None


@pytest.mark.parametrize("change", [{"cpu": "raspberry-pi-3"}, {"features": ["sve9"]}, {"target": 7}])
def test_what_was_kept_of_another_machine_is_no_answer(tvm: Path, change: dict[str, object]) -> None:
    trim(tvm, TARGET)
    file = tvm / "lib" / "tunefarm_host_target.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(UnknownTargetError, match="install apache-tvm again"):
        kept_target(tvm)
    file.unlink()
    with pytest.raises(UnknownTargetError, match="or name the target"):
        kept_target(tvm)


def test_an_environment_without_tvm_is_asked_as_ever(tmp_path: Path) -> None:
    assert kept_target(None) is None
    folder = tvm_folder()
    assert folder is not None
    assert kept_target(folder) is None
