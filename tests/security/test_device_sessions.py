"""A session runs what it is sent, as the agent's user: it gets at nothing of the agent's, nor of the user's."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import onnx
import pytest
from device_processes import ServerProcess, TrackerProcess, compile_library
from rpc_client import Client
from waiting import wait_until

from tunefarm_tuning.core.array_file import save_arrays
from tunefarm_tuning.process.sandbox import sandbox_state

pytestmark = pytest.mark.skipif(not sandbox_state().is_whole, reason="needs a kernel with the whole sandbox")

SOURCE = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define KERNEL(name) int __tvm_ffi_##name(void *self, const void *args, int32_t n, void *result)
static int reads(const char *path) { char c; int fd = open(path, O_RDONLY), got = fd < 0 ? -1 : (int)read(fd, &c, 1); if (fd >= 0) close(fd); return got > 0; }
static int writes(const char *path) { int fd = open(path, O_WRONLY | O_CREAT, 0600); if (fd >= 0) close(fd); return fd >= 0; }
static int lists(const char *path) { DIR *folder = opendir(path); if (folder) closedir(folder); return folder != 0; }
static const char *of_server(const char *name) { static char path[64]; snprintf(path, sizeof path, "/proc/%d/%s", getppid(), name); return path; }
static int connects(int port) {
  struct sockaddr_in to = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}};
  int fd = socket(AF_INET, SOCK_STREAM, 0); int ok = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0; close(fd); return ok;
}
static int listens(void) { int fd = socket(AF_INET, SOCK_STREAM, 0); int ok = fd >= 0 && listen(fd, 1) == 0; close(fd); return ok; }
static int opens(int family) { int fd = socket(family, SOCK_STREAM, 0); close(fd); return fd >= 0; }
static int traces(void) { if (ptrace(PTRACE_ATTACH, getppid(), 0, 0)) return 0; waitpid(getppid(), 0, __WALL); ptrace(PTRACE_DETACH, getppid(), 0, 0); return 1; }
static int starts(void) { int pid = fork(), code; if (pid == 0) { execl("/bin/true", "true", NULL); _exit(1); } waitpid(pid, &code, 0); return code == 0; }
#define TRY(attack) if (attack) fprintf(report, "%s\n", #attack);
KERNEL(attack) {
  FILE *report = fopen("report", "w");
  TRY(reads(CREDENTIAL)) TRY(lists(AGENT)) TRY(writes(AGENT "/planted")) TRY(chmod(CREDENTIAL, 0644) == 0)
  TRY(reads(SECRET)) TRY(lists(HOME)) TRY(writes(HOME "/planted"))
  TRY(reads(of_server("environ"))) TRY(lists(of_server("fd"))) TRY(reads(of_server("maps")))
  TRY(kill(getppid(), 0) == 0) TRY(traces()) TRY(connects(PORT)) TRY(listens()) TRY(opens(AF_UNIX))
  TRY(reads("/proc/cpuinfo")) TRY(reads("/proc/self/status")) TRY(writes("own")) TRY(starts())
  fclose(report);
  return 0;
}
KERNEL(fill) {
  static char block[1 << 20]; char name[32];
  for (int number = 0; number < 1000; number++) {
    snprintf(name, sizeof name, "file-%d", number);
    FILE *file = fopen(name, "w"); fwrite(block, 1, sizeof block, file); fclose(file); usleep(5000);
  }
  for (;;) sleep(1);
}
"""
BY_DESIGN = {'reads("/proc/cpuinfo")', 'reads("/proc/self/status")', 'writes("own")', "starts()"}
ATTACKS = {
    *("reads(CREDENTIAL)", "lists(AGENT)", 'writes(AGENT "/planted")', "chmod(CREDENTIAL, 0644) == 0"),
    *("reads(SECRET)", "lists(HOME)", 'writes(HOME "/planted")', 'reads(of_server("environ"))'),
    *('lists(of_server("fd"))', 'reads(of_server("maps"))', "kill(getppid(), 0) == 0", "traces()"),
    *("connects(PORT)", "listens()", "opens(AF_UNIX)"),
}


@pytest.fixture
def open_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Return a context: a server beside an agent's credential and a user's home, and a client with the stranger's kernels."""
    home, agent = tmp_path / "home", tmp_path / "home" / "agent"
    agent.mkdir(parents=True)
    (agent / "credential").write_text("tfk_device")
    (home / "secret").write_text("secret")
    tracker = TrackerProcess()
    service = socket.create_server(("127.0.0.1", 0))

    @contextmanager
    def start(**environment: str) -> Iterator[tuple[ServerProcess, Client]]:
        for name, value in {"HOME": str(home), **environment}.items():
            monkeypatch.setenv(name, value)
        key = f"dev-{uuid4().hex}"
        paths = {"CREDENTIAL": agent / "credential", "AGENT": agent, "HOME": home, "SECRET": home / "secret"}
        defines = [f'#define {name} "{path}"' for name, path in paths.items()]
        defines.append(f"#define PORT {service.getsockname()[1]}")
        library = compile_library("\n".join([*defines, SOURCE]), tmp_path / "kernels.so")
        server = ServerProcess(tracker.port, agent / "sessions", key)
        try:
            yield server, Client(tracker.port, library, key)
        finally:
            server.close()

    yield start
    service.close()
    tracker.close()


def attacks_that_succeed(client: Client) -> set[str]:
    session = client.session()
    session.upload(str(client.kernels))
    session.load_module("kernels.so")["attack"]()
    return set(bytes(session.download("report")).decode().splitlines())


def test_a_session_gets_at_nothing_of_the_agents(open_session: Callable[..., Any]) -> None:
    with open_session() as (_, client):
        assert attacks_that_succeed(client) == BY_DESIGN


@pytest.mark.exhaustive
def test_without_a_sandbox_the_attacks_succeed(open_session: Callable[..., Any]) -> None:
    with open_session(TUNEFARM_SANDBOX="off") as (_, client):
        achieved = attacks_that_succeed(client)
    # Whether a process may trace its parent is the machine's choice.
    assert achieved >= (ATTACKS | BY_DESIGN) - {"traces()"}


def test_a_session_that_fills_the_disk_is_ended_and_its_files_go(open_session: Callable[..., Any]) -> None:
    with open_session(TUNEFARM_SANDBOX_WRITE_BYTES=str(64 << 20)) as (server, client):
        with pytest.raises(Exception, match=r".+"):
            client.call("fill")
        end = server.wait_for("session-ended")
        assert end["ending"] == "overfull"
        assert end["detail"] == "wrote files of more than 64 MiB (TUNEFARM_SANDBOX_WRITE_BYTES)"
        wait_until(lambda: server.session_folders() == [], "its folder to go")


@pytest.mark.parametrize("sandbox", ["required", pytest.param("off", marks=pytest.mark.exhaustive)])
def test_children_of_a_session_run_in_sandboxes_of_their_own(
    open_session: Callable[..., Any], tmp_path: Path, sandbox: str
) -> None:
    """A device times other runtimes in them: they start a process, load a library, and read what was sent."""
    pytest.importorskip("openvino")
    shape = [1, 64]
    value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)  # noqa: E731
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value("x")], [value("y")])
    onnx.save(onnx.helper.make_model(graph, ir_version=8), tmp_path / "network.onnx")
    ones = np.ones(shape, np.float32)
    save_arrays(tmp_path / "arrays.npz", [ones])
    params = {
        "kind": "openvino",
        "path": "network.onnx",
        "names": ["x"],
        "inputs": "arrays.npz",
        "constants": {},
        "threads": 1,
        "outputs": ["y"],
        "expected": "arrays.npz",
        "widths": None,
        "rounding": None,
    }
    with open_session(TUNEFARM_SANDBOX=sandbox) as (_, client):
        session = client.session()
        for name in ("network.onnx", "arrays.npz"):
            session.upload(str(tmp_path / name))
        ask = session.get_function("tunefarm.baseline")

        def call(method: str, params: dict[str, Any]) -> dict[str, Any]:
            request = {"kind": "openvino", "method": method, "params": params, "timeout_sec": 60}
            answer: dict[str, Any] = json.loads(str(ask(json.dumps(request))))
            return answer

        assert call("open", params)["missing"] == ""
        outside = call("open", {**params, "path": str(tmp_path / "network.onnx")})
    assert (outside.get("missing") == "") == (sandbox == "off"), outside
