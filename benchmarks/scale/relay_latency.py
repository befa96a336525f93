"""The time of a remote call over the relay and over the gateway, beside the same call without them.

``python -m benchmarks.scale.relay_latency``; nothing else may be at work. All ends are on this machine, so that no network is in it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm
from benchmarks.scale.gateway import device_behind_gateway
from tvm import rpc

from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.process.relay.client import Relay
from tunefarm_tuning.process.sandbox import Access, sandbox_order
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.tvm.device.session import DeviceSession

_CALLS_A_ROUND = 200
_LARGE_BYTES = 16 << 20
_FILE_BYTES = 64 << 20
_ORDER = sandbox_order(Access(network=True))


def call_sec(remote: Any) -> float:
    """Return the median seconds of a call that does nothing."""
    ask = remote.get_function("runtime.NumThreads")
    seconds = []
    for _ in range(_CALLS_A_ROUND):
        begin = time.perf_counter()
        ask()
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


def _over(relay: Relay, device: RemoteDevice | None = None) -> Any:
    ticket = None if device is None else device.opening(relay.key)["ticket"]
    opened = relay.open(None, timeout_sec=600.0, connect_timeout_sec=60.0, ticket=ticket)
    return rpc.connect("127.0.0.1", relay.port, opened.token)


def main() -> None:
    """Measure in turn, in sessions of their own; print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        local_rpc() as local,
        closing(Relay(local.device.address, _ORDER)) as relay,
        device_behind_gateway() as device,
        closing(Relay(device.address, _ORDER)) as relay_to_gateway,
    ):
        file = Path(folder, "file")
        file.write_bytes(bytes(_FILE_BYTES))
        relays = {"over the relay": relay, "over relay and gateway": relay_to_gateway}
        address = local.device.address
        tracker = rpc.connect_tracker("127.0.0.1", address.tracker_port)
        ways: dict[str, Callable[[], Any]] = {
            "direct": lambda: tracker.request(address.key),
            "over the relay": partial(_over, relay),
            "over relay and gateway": partial(_over, relay_to_gateway, device),
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
