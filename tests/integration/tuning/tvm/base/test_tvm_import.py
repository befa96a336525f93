"""TVM is imported without what a process does not need, and lacks nothing that it does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_LIST = "import tvm_ffi; print(*sorted(tvm_ffi.registry.list_global_func_names()), sep='\\n')"
_OURS = "from tunefarm_tuning.tvm.base.tvm_import import import_tvm, load_backend; import_tvm()"


def run(code: str, **environment: str) -> list[str]:
    """Return the lines that a fresh interpreter prints."""
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return printed.stdout.splitlines()


@pytest.fixture(scope="module")
def whole() -> set[str]:
    """All functions of TVM's own import."""
    return set(run(f"import tvm; {_LIST}"))


def test_a_process_for_cpus_lacks_what_other_devices_need_alone(whole: set[str]) -> None:
    ours = set(run(f"{_OURS}; {_LIST}"))
    assert whole - ours == {
        "tirx.f_op_dispatcher",  # of operations on tiles of a GPU's memory
        "tirx.intrinsics.cuda.get_codegen",
        "tirx.intrinsics.cuda.header_generator",
    }
    assert ours < whole


@pytest.mark.exhaustive
def test_with_their_backends_it_lacks_nothing(whole: set[str]) -> None:
    kinds = "'cuda metal rocm trn opencl vulkan webgpu hexagon adreno'.split()"
    assert set(run(f"{_OURS}; [load_backend(kind) for kind in {kinds}]; {_LIST}")) == whole


def test_a_kind_without_a_backend_needs_none() -> None:
    run(f"{_OURS}; load_backend('llvm'); load_backend('nonsense')")


def test_nothing_of_it_stays_behind() -> None:
    """Libraries, names and types that come later are found, and programs that the process starts import TVM as ever."""
    code = (
        "import os, tvm_ffi; before = tvm_ffi.registry.list_global_func_names, tvm_ffi.core._object_type_key_to_index; "
        f"{_OURS}; after = tvm_ffi.registry.list_global_func_names, tvm_ffi.core._object_type_key_to_index; "
        "print(before == after, os.environ.get('TVM_DEVICE_BACKEND_AUTOLOAD'))"
    )
    assert run(code) == ["True None"]
    assert run(code, TVM_DEVICE_BACKEND_AUTOLOAD="1") == ["True 1"]


def test_schedules_do_not_check_the_types_of_their_arguments() -> None:
    code = (
        f"{_OURS}; from tvm.s_tir import Schedule; checked = [name for name, method in vars(Schedule).items() "
        "if hasattr(method, '__wrapped__') and name[0] != '_']; print(checked, Schedule.split.__code__.co_filename.endswith('schedule.py'))"
    )
    assert run(code) == ["[] True"]


def test_the_runtime_alone_is_imported_too() -> None:
    code = f"{_OURS}; import tvm; print(tvm.base._RUNTIME_ONLY, tvm.get_global_func('tvm.contrib.sort.argsort') is not None)"
    assert run(code, TVM_USE_RUNTIME_LIB="1") == ["True True"]


@pytest.mark.exhaustive
def test_it_changes_nothing_where_tvm_was_imported_before() -> None:
    assert run(f"import tvm; {_OURS}; print(tvm.backend.loader.is_loaded('cuda'))") == ["True"]
