"""The names and numbers of TVM that the device relies on are unchanged."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

from tunefarm_workers.device.hardened_server import tvm_private
from tunefarm_workers.device.rpc import wire as rpc_wire
from tunefarm_workers.device.rpc.process import server_environment


def test_the_private_names_are_there() -> None:
    tvm_private.check()


def test_the_runtime_alone_has_all_that_sessions_call() -> None:
    """The compiler's absence takes no function along that a kernel or a measurement needs."""
    code = (
        "from tunefarm_workers.device.hardened_server import tvm_private; tvm_private.check(); import tvm, tvm_ffi; "
        "assert tvm.base._RUNTIME_ONLY; print(*tvm_ffi.registry.list_global_func_names())"
    )
    environment = server_environment(os.environ, num_threads=1)
    names = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    tvm_private.check()
    import tvm_ffi

    # Of what runs networks, it lacks printing; what is left are tests of TVM's, and makers of modules.
    wanted = ("vm.", "tvm.contrib.", "rpc.", "runtime.", "tvm.rpc.")
    missing = {
        name
        for name in tvm_ffi.registry.list_global_func_names()
        if name.startswith(wanted)
        and not name.startswith(("rpc.test.", "runtime.Module", "tvm.contrib.nvcc", "tvm.contrib.rocm"))
    } - set(names)
    assert missing <= {
        "rpc.PopenSession",
        "runtime.CSourceModuleCreate",
        "runtime.SourceModuleCreate",
        "vm.builtin.debug_print",
    }


def test_the_servers_private_signatures() -> None:
    from tvm.rpc import server, tracker

    assert list(inspect.signature(server._server_env).parameters) == ["load_library", "work_path"]
    assert list(inspect.signature(tracker._tracker_server).parameters) == ["listen_sock", "stop_key"]


def test_the_numbers_on_the_wire() -> None:
    from tvm.rpc import base

    assert rpc_wire.RPC_MAGIC == base.RPC_MAGIC
    assert rpc_wire.TRACKER_MAGIC == base.RPC_TRACKER_MAGIC
    assert rpc_wire.CODE_SUCCESS == base.RPC_CODE_SUCCESS
    assert rpc_wire.CODE_MISMATCH == base.RPC_CODE_MISMATCH
    for code in rpc_wire.TrackerCode:
        assert getattr(base.TrackerCode, code.name) == code.value
