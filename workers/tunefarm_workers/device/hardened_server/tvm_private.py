"""The private names of TVM 0.27 that the server uses, in one module.

A contract test calls `check`: a new TVM that moved one of them fails there, not on a device.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.entry import load_whole_runtime
from tunefarm_tuning.measure.device_functions import RECEIVE_FILE

TVM_SERIES = "0.27."
_PIECE_BYTES = 1 << 20
_RANDOM_FILL = "tvm.contrib.random.random_fill"


class Workspace:
    """The folder of a session's files, which TVM's serving loop uses as its temporary folder.

    Unlike TVM's own, it keeps uploads and downloads inside: their names come from the other side.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.libs: list[Any] = []  # TVM stores the libraries loaded at start here

    def relpath(self, name: str) -> str:
        """Return the path of a file of the session.

        Raises:
            ValueError: If `name` leads out of the session's folder.
        """
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder):
            raise ValueError("a session's files stay in its own folder")
        return str(path)

    def receive(self, descriptor: int, name: str, size: int) -> None:
        """Write a file whose bytes come next on a connection.

        Raises:
            OSError: If it cannot be written; its bytes are read nevertheless, so that the next request is.
            EOFError: If the connection ends before.
            ValueError: As `relpath`.
            RuntimeError: If links of its folder go round in circles.
        """
        buffer = memoryview(bytearray(_PIECE_BYTES))
        error: Exception | None = None
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(Path(self.relpath(name)).open("wb"))
            except (OSError, ValueError, RuntimeError) as failure:
                error = failure
            while size > 0:
                count = os.readv(descriptor, [buffer[: min(size, len(buffer))]])
                if not count:
                    raise EOFError("the connection ended within a file")
                size -= count
                if error is None:
                    try:
                        file.write(buffer[:count])
                    except OSError as failure:
                        error = failure
        if error is not None:
            raise error


def check() -> None:
    """Check that this TVM has the private names that the server uses.

    Raises:
        RuntimeError: If it lacks one; the message names it.
    """
    importlib.import_module("tunefarm_tuning.tvm")  # it imports TVM in half its time
    load_whole_runtime()
    import tvm
    import tvm_ffi
    from tvm.rpc import server

    if tvm.get_global_func(_RANDOM_FILL, allow_missing=True) is None:
        raise RuntimeError(f"this TVM lacks {_RANDOM_FILL}")
    if not tvm.__version__.startswith(TVM_SERIES):
        raise RuntimeError(f"this server supports TVM {TVM_SERIES}x, not {tvm.__version__}")
    wanted: Mapping[str, tuple[Any, tuple[str, ...]]] = {
        "tvm_ffi.core": (tvm_ffi.core, ("_object_type_key_to_index",)),
        "tvm.rpc.server": (server, ("_server_env", "_ffi_api", "_parse_server_opt")),
        "tvm.rpc._ffi_api": (server._ffi_api, ("ServerLoop", "ReturnException")),  # noqa: SLF001
    }
    missing = [
        f"{module}.{name}"
        for module, (holder, names) in wanted.items()
        for name in names
        if not hasattr(holder, name)
    ]
    if missing:
        raise RuntimeError(f"this TVM lacks {', '.join(missing)}")
    server.logger.setLevel(logging.WARNING)


def serve(descriptor: int, workspace: Workspace) -> None:
    """Serve the client on the socket until it hangs up; runs the client's code."""
    from tvm import register_global_func
    from tvm.rpc import server

    def receive_file(name: str, size: int, _token: str) -> None:
        """Write a file of the session: its bytes follow this call on the connection."""
        workspace.receive(descriptor, str(name), int(size))

    register_global_func(RECEIVE_FILE, receive_file, override=True)
    server._server_env("", workspace)  # noqa: SLF001
    server._ffi_api.ServerLoop(descriptor)  # noqa: SLF001


def tell_timeout(descriptor: int, timeout_sec: float) -> None:
    """Tell the client that its session timed out (it raises `tvm.error.RPCSessionTimeoutError`)."""
    from tvm.rpc import server

    server._ffi_api.ReturnException(  # noqa: SLF001
        descriptor, f"RPCSessionTimeoutError: the session exceeded its {timeout_sec:g} seconds"
    )
