"""A worker that holds a device lease: each line on standard input opens a session, and the result is printed."""

from __future__ import annotations

import json
import sys
from typing import Any

from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.tvm.device.session import DeviceSession, open_session


def main() -> None:
    """Take the tracker's port, the device's key and the lease's number; answer ``open``, ``alive`` and ``close``."""
    address: dict[str, Any] = {
        "tracker_host": "127.0.0.1",
        "tracker_port": int(sys.argv[1]),
        "key": sys.argv[2],
        "fence": int(sys.argv[3]) if sys.argv[3] != "none" else None,
    }
    session: DeviceSession | None = None
    print(json.dumps({"event": "started"}), flush=True)
    for line in sys.stdin:
        reply: dict[str, Any] = {"event": line.strip()}
        if line.strip() == "open":
            try:
                session = open_session(address, timeout_sec=300.0, connect_timeout_sec=120.0)
            except DeviceLostError as error:
                reply["error"] = error.message
        elif session is not None and line.strip() == "alive":
            reply["alive"] = session.is_alive()
        elif session is not None:
            session.close()
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
