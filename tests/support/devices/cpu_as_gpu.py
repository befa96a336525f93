"""A device session that runs on the CPU where a test asks for a GPU."""

from __future__ import annotations

from typing import Any

from tunefarm_tuning.tvm.device.session import DeviceSession


class CpuAsGpu(DeviceSession):
    """A session whose GPU is the CPU."""

    def __init__(self, session: DeviceSession) -> None:
        super().__init__(session._remote)
        self.host, self.port = session.host, session.port

    def device(self, kind: str) -> Any:
        del kind
        return super().device("cpu")
