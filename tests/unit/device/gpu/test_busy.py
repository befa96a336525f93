"""Whether a GPU is in use by others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from nvml_answers import Driver, uuid

from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.reading import GpuProcess, GpuReading, is_ours_or_gone, read
from tunefarm_tuning.measure.gpu.state import GpuState
from tunefarm_workers.device.gpu.busy import BusyGpu

OURS, THEIRS = 100, 200
LONG_SEC = 1e9


class Judge:
    """Judges with a clock of its own; 100 is our process."""

    def __init__(self) -> None:
        self.now = 0.0
        self.busy = BusyGpu(lambda: self.now, lambda pid: pid == OURS)

    def __call__(
        self, reading: GpuReading, *, after: float = 5.0, unused: float = LONG_SEC, pids: bool = True
    ) -> str:
        self.now += after
        return self.busy.judge(reading, tells_our_pids=pids, unused_for_sec=unused)


def used(*processes: tuple[int, float | None], load: float | None = 0.0) -> GpuReading:
    return GpuReading(
        load=load,
        processes=tuple(GpuProcess(pid=pid, name="python3", load=busy) for pid, busy in processes),
    )


def test_who_computes_keeps_it_busy() -> None:
    judge = Judge()
    assert judge(used()) == ""
    assert judge(used((OURS, 0.9), load=0.9), unused=0.0) == ""
    assert judge(used((OURS, 0.9), (THEIRS, 0.0), load=0.9), unused=0.0) == "", "a notebook that sleeps"
    assert judge(used((OURS, 0.1), (THEIRS, 0.9), load=1.0), unused=0.0) == "python3 (pid 200)"


def test_it_is_free_after_a_rest() -> None:
    judge = Judge()
    assert judge(used((THEIRS, 0.9))) == "python3 (pid 200)"
    assert judge(used((THEIRS, 0.0))) == "python3 (pid 200)", "it takes a breath"
    assert judge(used((THEIRS, 0.9))) == "python3 (pid 200)"
    assert judge(used(), after=9.0) == "python3 (pid 200)"
    assert judge(used(), after=1.0) == ""


def test_a_driver_that_does_not_tell_processes_apart() -> None:
    judge = Judge()
    assert judge(used((OURS, None), load=1.0), unused=0.0) == ""
    assert judge(used((OURS, None), (THEIRS, None), load=1.0), unused=0.0) == "", "it may be our own load"
    assert judge(used((THEIRS, None), load=0.0)) == "", "it sleeps"
    assert judge(used((THEIRS, None), load=0.5), unused=1.0) == "", "the load may be our last session's"
    assert judge(used((THEIRS, None), load=0.5)) == "python3 (pid 200)"
    assert judge(used((OURS, None), (THEIRS, None), load=0.5), after=60.0, unused=0.0) == "python3 (pid 200)"
    assert judge(used((THEIRS, None), load=0.0)) == ""


def test_in_a_container_the_load_tells() -> None:
    """Its pids are the host's there: ours may be among them."""
    judge = Judge()
    assert judge(used((THEIRS, 0.9), load=0.9), unused=0.0, pids=False) == ""
    assert judge(used((THEIRS, 0.9), load=0.05), pids=False) == ""
    assert judge(used((THEIRS, 0.9), load=0.9), pids=False) == "a process without a name"
    assert judge(GpuReading(load=0.9)) == "a process without a name"
    assert judge(GpuReading(), after=60.0) == "", "a slice of a GPU tells no load"


def test_the_busiest_are_named() -> None:
    reason = Judge()(used((1, 0.1), (2, 0.9), (3, 0.2), (4, 0.3), (5, 0.01)))
    assert reason == "python3 (pid 2), python3 (pid 4), python3 (pid 3) and 1 more"


def test_our_processes_are_known() -> None:
    assert is_ours_or_gone(os.getpid())
    assert not is_ours_or_gone(os.getppid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_ours_or_gone(child.pid)
    child.communicate(b"\n")
    assert is_ours_or_gone(child.pid), "it is gone"


def test_a_reading_of_each_machine(driver: Driver) -> None:
    nvml = open_nvml()
    driver.is_as("eight")
    well = read(nvml, uuid(0))
    assert well.state == GpuState(
        clock_mhz=1980.0,
        memory_clock_mhz=2619.0,
        temperature_celsius=31.0,
        power_watts=70.5,
        memory_used_bytes=4 << 20,
    )
    assert (well.lost, well.load, well.processes, well.mig) == ("", 0.0, (), False)
    driver.is_as("unsupported")
    odd = read(nvml, uuid(0))
    assert (odd.lost, odd.state.memory_used_bytes, odd.power_limit_watts, odd.mig) == ("", None, None, None)
    assert odd.state.clock_mhz == 2418.0
    driver.answers_of(0, processes=[[7, None, None]])
    (process,) = read(nvml, uuid(0)).processes or ()
    assert (process.load, str(process)) == (None, "a process (pid 7)")
    driver.is_as("mig")
    cut = read(nvml, uuid(0))
    assert (cut.mig, cut.load) == (True, None)
    assert [str(process) for process in cut.processes or ()] == ["python3 (pid 4242)"]
    driver.is_as("lost")
    assert read(nvml, uuid(4)).lost == ""
    assert read(nvml, uuid(5)).lost == "the GPU has fallen off the bus"
    assert read(nvml, uuid(3)).lost == "the GPU is gone"
    driver.fails()
    assert "was replaced" in read(nvml, uuid(0)).lost


@pytest.mark.parametrize("name", ["\x1b[31mred", "a" * 500, ""])
def test_names_of_processes_are_strangers_text(driver: Driver, name: str) -> None:
    driver.has("H100")
    driver.answers_of(0, processes=[[7, 1, name]])
    (process,) = read(open_nvml(), uuid(0)).processes or ()
    assert str(process).isprintable()
    assert len(str(process)) < 120
