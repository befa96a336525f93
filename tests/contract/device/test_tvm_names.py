"""The names and numbers of TVM that the device relies on are unchanged."""

from __future__ import annotations

import inspect

from tunefarm_workers.device.hardened_server import tvm_private
from tunefarm_workers.device.rpc import wire as rpc_wire


def test_the_private_names_are_there() -> None:
    tvm_private.check()


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
