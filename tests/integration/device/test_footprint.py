"""What an idle agent takes of a small board's memory (docs/devices.md); what it takes of its disk: `test_agent_on_arm`."""

from __future__ import annotations

import psutil
from device_processes import AgentProcess

_MOST_BYTES = 80 << 20
_COMPILER = "libtvm_compiler"


def test_an_idle_agent_and_its_server_fit_into_a_small_board(agent: AgentProcess) -> None:
    server = agent.wait_online()["server_pid"]
    processes = [psutil.Process(agent.pid), *psutil.Process(agent.pid).children(recursive=True)]
    assert server in {process.pid for process in processes}
    # Shared pages count once.
    assert sum(process.memory_full_info().pss for process in processes) < _MOST_BYTES
    mapped = {entry.path for process in processes for entry in process.memory_maps()}
    assert not any(_COMPILER in path for path in mapped), "a quarter of a gigabyte, which no device needs"
