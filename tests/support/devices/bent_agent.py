"""A device agent that starts `bent_server` as its RPC server; its command line is that of the agent."""

from __future__ import annotations

import sys

from tunefarm_workers.device import __main__ as agent_main
from tunefarm_workers.device.agent import Agent


class BentAgent(Agent):
    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more, server_module="bent_server")  # type: ignore[arg-type]


if __name__ == "__main__":
    agent_main.Agent = BentAgent  # type: ignore[misc]
    sys.exit(agent_main.main())
