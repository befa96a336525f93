"""Start and kill a device's processes in tests: tracker, hardened server and agent; kernels that hang or crash."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from farm_processes import free_port
from parentage import die_with_parent
from rpc_client import PATIENCE_SEC
from waiting import gone, wait_until

KERNELS_SOURCE = """
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#define KERNEL(name) int __tvm_ffi_##name(void *self, const void *args, int32_t n, void *result)
KERNEL(good) { return 0; }
KERNEL(crash) { raise(SIGSEGV); return 0; }
KERNEL(leave) { exit(7); }
KERNEL(spin) { close(creat("spinning", 0600)); for (;;) sleep(1); }
KERNEL(freeze) { raise(SIGSTOP); return 0; }
KERNEL(litter) { if (fork() == 0) { setsid(); if (fork() == 0) for (;;) sleep(1); _exit(0); } return 0; }
"""


class Child:
    """A process that writes JSON lines; its whole process group goes with it."""

    def __init__(
        self, arguments: Sequence[str], env: dict[str, str] | None = None, python: str = sys.executable
    ) -> None:
        self.process = subprocess.Popen(
            [python, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (it takes no lock)
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.events.append(json.loads(line))

    @property
    def pid(self) -> int:
        return self.process.pid

    def named(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.events if entry.get("event") == event]

    def wait_for(self, event: str, count: int = 1) -> dict[str, Any]:
        return wait_until(
            lambda: self.named(event)[count - 1 : count], lambda: f"{count} x {event}; {self.events}"
        )[0]

    def end(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.process.wait(PATIENCE_SEC)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_SEC)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._reader.join(PATIENCE_SEC)
        assert self.process.stdout is not None
        self.process.stdout.close()


class TrackerProcess(Child):
    """A tracker, at a port that another one can have after it."""

    def __init__(self, port: int | None = None) -> None:
        super().__init__([str(Path(__file__).parent / "tvm_tracker.py"), "--port", str(port or free_port())])
        self.port: int = wait_until(lambda: self.events, "the tracker's port")[0]["port"]


class ServerProcess(Child):
    """A hardened server on its own."""

    def __init__(self, tracker_port: int, work_dir: Path, key: str, *options: str) -> None:
        self.work_dir = work_dir
        self.key = key
        super().__init__(
            [
                "-m",
                "tunefarm_workers.device.hardened_server",
                *("--key", self.key, "--tracker", f"127.0.0.1:{tracker_port}"),
                *("--work-dir", str(work_dir), *options),
            ],
            env={"TVM_NUM_THREADS": "1"},
        )
        self.port: int = self.wait_for("listening")["port"]

    def session_folders(self) -> list[Path]:
        return list(self.work_dir.glob("session-*"))

    def wait_childless(self) -> None:
        """Wait until the process has no children: a killed one needs a moment to disappear."""
        wait_until(
            lambda: all(gone(child.pid) for child in psutil.Process(self.pid).children(recursive=True)),
            "the end of all sessions' processes",
        )


class AgentProcess(Child):
    def __init__(
        self,
        url: str,
        work_dir: Path,
        *options: str,
        key: str = "tfk_test",
        module: str = "tunefarm_workers.device",
        env: dict[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.work_dir = work_dir
        super().__init__(
            [
                *("-m", module, "--url", url, "--name", "box", "--device-key", "test"),
                *("--target", "llvm -num-cores=1", "--device-model", "test-box", "--heartbeat-sec", "1"),
                *("--work-dir", str(work_dir), *options),
            ],
            env={"TUNEFARM_API_KEY": key, **(env or {})},
            python=python,
        )

    @property
    def rpc_key(self) -> str:
        return str(self.events[-1]["rpc_key"])

    def wait_online(self, after: int = 0, other_than: int | None = None) -> dict[str, Any]:
        """Wait for a proof of life later than the first `after` events, of another server than that process."""
        online = wait_until(
            lambda: [
                event
                for event in self.events[after:]
                # When a server dies, the API still has its last heartbeat: online, and yet not serving.
                if event.get("online") and event["state"] == "serving" and event["server_pid"] != other_than
            ],
            lambda: f"online; {self.events}",
        )
        return dict(online[-1])


def compile_kernels(folder: Path, compiler: Sequence[str] = ("gcc",)) -> Path:
    """Make a library of kernels of every temper, as TVM's runtime calls them."""
    return compile_library(KERNELS_SOURCE, folder / "kernels.so", compiler)


def compile_library(source: str, library: Path, compiler: Sequence[str] = ("gcc",)) -> Path:
    """Compile C into a library, for this machine unless the compiler is for another one."""
    command = [*compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source.encode(), check=True)
    return library
