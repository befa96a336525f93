"""A gateway and a device that is connected with it, as processes on this machine.

``python -m benchmarks.scale.gateway`` is the device.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunefarm_app.identity.authority import Authority, ensure_authority
from tunefarm_app.identity.receipts import ReceiptReader
from tunefarm_app.identity.tickets import TicketSigner
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo
from tunefarm_workers.device.rpc.process import RpcProcess, server_command, server_environment
from tunefarm_workers.device.tunnel.certificate import DeviceKey
from tunefarm_workers.device.tunnel.link import GatewayAccess, GatewayLink

_DEVICE = "dev_1/key"


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
def device_behind_gateway() -> Iterator[RemoteDevice]:
    """Start a gateway and a device that is connected with it; yield the device, under its lease 1, as a worker has it."""
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
        authority = ensure_authority(Path(folder, "keys"))
        workers = Path(folder, "keys", "worker")
        signer, receipts = (
            TicketSigner.read(workers / "tickets.key"),
            ReceiptReader.read(workers / "receipts.pem"),
        )
        with (
            _running("tunefarm_workers.gateway", f"--dir={folder}/keys") as gateway,
            _running("benchmarks.scale.gateway", folder, str(gateway["port"])),
        ):
            yield RemoteDevice(
                tracker_host="127.0.0.1",
                tracker_port=gateway["port"],
                key=_DEVICE,
                info=DeviceInfo(model="test", num_cores=1, name="test"),
                fence=1,
                authority=authority.certificate,
                ticket=lambda fence, relay_key: signer.sign(_DEVICE, fence, relay_key),
                origin=lambda ticket, receipt: receipts.origin(_DEVICE, ticket, receipt),
            )


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


if __name__ == "__main__":
    be_device(Path(sys.argv[1]), int(sys.argv[2]))
