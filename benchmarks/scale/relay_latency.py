"""The time of a remote call over the relay and over the gateway, beside the same call without them.

``python -m benchmarks.scale.relay_latency``; nothing else may be at work. All ends are on this machine, so that no network is in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm
from tvm import rpc

from tunefarm_app.identity.authority import Authority, ensure_authority
from tunefarm_app.identity.tickets import TicketSigner
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.relay.client import Relay
from tunefarm_tuning.process.sandbox import Access, sandbox_order
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.tvm.device.session import DeviceSession
from tunefarm_workers.device.rpc.process import RpcProcess, server_command, server_environment
from tunefarm_workers.device.tunnel.certificate import DeviceKey
from tunefarm_workers.device.tunnel.link import GatewayAccess, GatewayLink

_CALLS_A_ROUND = 200
_LARGE_BYTES = 16 << 20
_FILE_BYTES = 64 << 20
_DEVICE = "dev_1/key"
_ORDER = sandbox_order(Access(network=True))


def call_sec(remote: Any) -> float:
    """Return the median seconds of a small call."""
    ask = remote.get_function("tvm.rpc.server.workpath")
    seconds = []
    for _ in range(_CALLS_A_ROUND):
        begin = time.perf_counter()
        ask("")
        seconds.append(time.perf_counter() - begin)
    return median(seconds)


def file_sec(remote: Any, relay: Relay | None, file: Path) -> float:
    """Return the seconds of a file of 64 MiB to the device."""
    session = DeviceSession(remote, relay=relay)
    begin = time.perf_counter()
    session.upload(file)
    return time.perf_counter() - begin


def copy_sec(remote: Any) -> tuple[float, float]:
    """Return the seconds of 16 MiB to the device, and back."""
    data = np.ones(_LARGE_BYTES, np.uint8)
    tensor = tvm.runtime.empty(data.shape, "uint8", remote.cpu(0))
    begin = time.perf_counter()
    tensor.copyfrom(data)
    middle = time.perf_counter()
    tensor.numpy()
    return middle - begin, time.perf_counter() - middle


@contextmanager
def _running(module: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run one of our processes for the time of the block; yield the JSON line that it begins with."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.terminate()


@contextmanager
def over_gateway(folder: Path) -> Iterator[tuple[Callable[[], Any], Relay]]:
    """Start a gateway and a device that is connected with it; yield what opens a session, and the relay to it."""
    authority = ensure_authority(folder / "keys")
    signer = TicketSigner.read(folder / "keys" / "worker" / "tickets.key")
    with (
        _running("tunefarm_workers.gateway", f"--dir={folder / 'keys'}") as gateway,
        _running("benchmarks.scale.relay_latency", f"--device={folder}", f"--port={gateway['port']}"),
    ):
        address = DeviceAddress(
            tracker_host="127.0.0.1",
            tracker_port=gateway["port"],
            key=_DEVICE,
            authority=authority.certificate,
        )
        with closing(Relay(address, _ORDER)) as relay:
            key = str(relay.key)
            yield (lambda: _over(relay, signer.sign(_DEVICE, 1, key))), relay


def _over(relay: Relay, ticket: str | None = None) -> Any:
    opened = relay.open(None, timeout_sec=600.0, connect_timeout_sec=60.0, ticket=ticket)
    return rpc.connect("127.0.0.1", relay.port, opened.token)


def be_device(folder: Path, port: int) -> None:
    """Be the device: an RPC server behind a door, and a link to the gateway."""
    key = DeviceKey()
    authority = Authority.read(folder / "keys")
    context = key.context(authority.certify_device(key.request, _DEVICE), authority.certificate)
    command = server_command(
        rpc_key="key",
        work_dir=folder / "sessions",
        max_session_sec=900.0,
        memory_bytes=None,
    )
    server = RpcProcess(command, server_environment({}, num_threads=1))
    access = GatewayAccess(address=("127.0.0.1", port), context=context)
    link = GatewayLink(access, lambda: (server.connect(), server.pid), rpc_key="key")
    print(json.dumps({"device": _DEVICE}), flush=True)
    sys.stdin.read()
    link.close()
    server.end(grace_sec=5.0)


def main() -> None:
    """Measure in turn, in sessions of their own; print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device is not None:
        be_device(arguments.device, arguments.port)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        local_rpc() as local,
        closing(Relay(local.device.address, _ORDER)) as relay,
        over_gateway(Path(folder)) as (open_over_gateway, relay_to_gateway),
    ):
        file = Path(folder, "file")
        file.write_bytes(bytes(_FILE_BYTES))
        relays = {"over the relay": relay, "over relay and gateway": relay_to_gateway}
        address = local.device.address
        tracker = rpc.connect_tracker("127.0.0.1", address.tracker_port)
        ways: dict[str, Callable[[], Any]] = {
            "direct": lambda: tracker.request(address.key),
            "over the relay": partial(_over, relay),
            "over relay and gateway": open_over_gateway,
        }
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, measured in rows.items():
                begin = time.perf_counter()
                remote = ways[name]()
                opened_sec = time.perf_counter() - begin
                seconds = (opened_sec, call_sec(remote), *copy_sec(remote))
                measured.append((*seconds, file_sec(remote, relays.get(name), file)))
                del remote
    print(
        "| | A session, ms | A call, µs | 16 MiB there, ms | back, ms | a file of 64 MiB there, ms |\n|---|---:|---:|---:|---:|---:|"
    )
    for name, measured in rows.items():
        session, call, there, back, sent = (median(column) for column in zip(*measured, strict=True))
        times = f"{1e3 * session:.1f} | {1e6 * call:.0f} | {1e3 * there:.0f} | {1e3 * back:.0f} | {1e3 * sent:.0f}"
        print(f"| {name} | {times} |")


if __name__ == "__main__":
    main()
