"""The RPC server's process. The agent starts it; see ``--help`` for starting one by hand."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.cuda_runtime import preload_cuda_runtime
from tunefarm_tuning.artifact.part_calls import serve
from tunefarm_tuning.measure.baselines.session import SessionBaselines
from tunefarm_tuning.measure.device_functions import BASELINE, FUNCTIONS, WATCH_FUNCTIONS
from tunefarm_tuning.measure.gpu.nvml import preload
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.reading import state_and_users
from tunefarm_tuning.measure.gpu.state import GPU_STATE
from tunefarm_tuning.measure.session_parts import CONTROL, SessionParts
from tunefarm_tuning.process.lifeline import wake_at_end
from tunefarm_workers.device.hardened_server import tvm_private
from tunefarm_workers.device.hardened_server.loop import RpcServer, ServerOptions
from tunefarm_workers.device.rpc.wire import parse_address

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the end of standard input."""
    parser = argparse.ArgumentParser(
        prog="python -m tunefarm_workers.device.hardened_server",
        description="Run an RPC server that TVM's clients reach through a tracker. Ends with its standard input.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port (default)")
    parser.add_argument("--key", required=True, help="key of the device at the tracker")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--tracker", type=parse_address, metavar="HOST:PORT")
    way.add_argument(
        "--door",
        type=int,
        metavar="FD",
        help="descriptor of a Unix socket through which the agent hands over connections; the server then listens nowhere",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST",
        help="host name for clients to connect to (default: the address that the tracker sees)",
    )
    parser.add_argument("--work-dir", required=True, type=Path)
    parser.add_argument("--max-session-sec", type=float, default=900.0)
    parser.add_argument("--hello-sec", type=float, default=5.0)
    parser.add_argument(
        "--memory-bytes", type=int, default=0, help="address space of a session; 0 for no limit (default)"
    )
    arguments = parser.parse_args(argv)
    wake_at_end(0)
    events = _take_over_stdout()
    preload_cuda_runtime()
    tvm_private.check()
    _offer_device_functions()
    try:
        server = RpcServer(
            ServerOptions(
                host=arguments.host,
                port=arguments.port,
                rpc_key=arguments.key,
                tracker=arguments.tracker,
                door=arguments.door,
                advertised_host=arguments.advertise,
                work_dir=arguments.work_dir.absolute(),
                max_session_sec=arguments.max_session_sec,
                hello_sec=arguments.hello_sec,
                memory_bytes=arguments.memory_bytes or None,
                gpu=bool(os.environ.get(_VISIBLE, "")),
            ),
            lambda event: _write(events, event),
            stdin=0,
        )
    except OSError as error:
        print(f"cannot listen on {arguments.host}:{arguments.port}: {error}", file=sys.stderr)
        return 1
    server.run()
    return 0


def _take_over_stdout() -> int:
    """Reserve standard output for events; output of kernels and libraries goes to standard error."""
    events = os.dup(1)
    os.dup2(2, 1)
    os.set_blocking(events, False)
    return events


def _write(events: int, event: dict[str, Any]) -> None:
    # An agent that does not read must not stop the server: an event that does not fit into the pipe is lost.
    with contextlib.suppress(OSError):
        os.write(events, json.dumps(event).encode() + b"\n")


def _offer_device_functions(environment: Mapping[str, str] = os.environ) -> None:
    """Let sessions run parts of networks in ONNX Runtime, time other runtimes and watch the machine; if the agent named one GPU, also what a GPU offers.

    The first call opens ONNX Runtime or the driver.
    """
    import tvm

    from tunefarm_tuning.tvm.device.kernel_check import KERNEL_FUNCTIONS
    from tunefarm_tuning.tvm.device.kernel_times import TIMING_FUNCTIONS

    tvm.register_global_func(CONTROL, _control_parts, override=True)
    tvm.register_global_func(BASELINE, lambda request: _baselines.control(str(request)), override=True)
    for name, function in (WATCH_FUNCTIONS | KERNEL_FUNCTIONS | TIMING_FUNCTIONS).items():
        tvm.register_global_func(name, function, override=True)
    uuid = environment.get(_VISIBLE, "")
    if not uuid.startswith("GPU-") or "," in uuid:
        return

    nvml = open_nvml(environment)
    preload()
    tvm.register_global_func(GPU_STATE, lambda: state_and_users(nvml, uuid), override=True)
    for name, function in FUNCTIONS.items():
        tvm.register_global_func(name, function, override=True)


def _control_parts(request: str) -> str:
    """Answer a session about the parts of its networks, which run on this thread of the session's process."""
    serve(_parts)
    return _parts.control(str(request))


_parts = SessionParts()
_baselines = SessionBaselines()
"""Each session has its own: it is a forked process."""


if __name__ == "__main__":
    sys.exit(main())
