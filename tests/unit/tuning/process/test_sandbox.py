"""The sandbox itself: what may be asked for, what it lets through, and what a machine without it gets."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process import Access, ChildProcess, landlock, sandbox, seccomp
from tunefarm_tuning.process.sandbox import (
    SandboxMode,
    SandboxState,
    check_sandbox,
    sandbox_mode,
    sandbox_state,
)

HANDLERS = Path(__file__).parent / "child_handlers"
ENV = {"PYTHONPATH": str(HANDLERS)}
LONG_SEC = 120.0

pytestmark = pytest.mark.skipif(not sandbox_state().is_whole, reason="needs a kernel with the whole sandbox")


def child(access: Access | None) -> ChildProcess:
    return ChildProcess("reaching_handlers", access=access, env=ENV)


def test_an_access_survives_the_command_line() -> None:
    access = Access(reads=(Path("/a b"), Path("/ä")), writes=(Path("/c"),), network=True, gpu=True)
    assert Access.from_json(access.to_json()) == access
    assert Access.from_json(Access().to_json()) == Access()


def test_relative_paths_are_of_the_parents_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_text("m")
    monkeypatch.chdir(tmp_path)
    with child(Access(reads=(Path("model"),))) as reader:
        assert reader.call("read", {"path": str(tmp_path / "model")}, timeout_sec=LONG_SEC) == "m"


def test_a_child_reads_what_it_may(tmp_path: Path) -> None:
    folder = tmp_path / "granted"
    folder.mkdir()
    (folder / "file").write_text("f")
    single, other = tmp_path / "single", tmp_path / "other"
    single.write_text("s")
    other.write_text("o")
    with child(Access(reads=(folder, single, tmp_path / "missing"))) as reader:
        assert reader.call("read", {"path": str(folder / "file")}, timeout_sec=LONG_SEC) == "f"
        assert reader.call("read", {"path": str(single)}, timeout_sec=LONG_SEC) == "s"
        assert reader.call("read", {"path": str(other)}, timeout_sec=LONG_SEC) is None
        assert reader.call("write", {"path": str(folder / "file")}, timeout_sec=LONG_SEC) is None
        (tmp_path / "link").symlink_to(other)
        (folder / "way-out").symlink_to(other)
        assert reader.call("read", {"path": str(folder / "way-out")}, timeout_sec=LONG_SEC) is None


def test_a_child_keeps_its_facts_when_the_kernel_forgets_them() -> None:
    """What is in ``/proc`` gets new inodes once the kernel dropped the old ones, which no rule is about: an open descriptor keeps them."""
    with child(Access()) as reader:
        statm = {"path": "/proc/self/statm"}
        assert reader.call("read", statm, timeout_sec=LONG_SEC)
        open_files = [str(link.readlink()) for link in Path(f"/proc/{reader.pid}/fd").iterdir()]
        assert {f"/proc/{reader.pid}", "/proc/meminfo", "/proc/sys"} <= set(open_files)
        forget = Path("/proc/sys/vm/drop_caches")
        if os.access(forget, os.W_OK):
            forget.write_text("2")  # inodes and names, no files' contents
            assert reader.call("read", statm, timeout_sec=LONG_SEC)


def test_a_child_writes_and_links_in_its_folders(tmp_path: Path) -> None:
    first, other = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    other.mkdir()
    with child(Access(writes=(first, other))) as writer:
        assert writer.call("write", {"path": str(first / "new")}, timeout_sec=LONG_SEC) == "written"
        params = {"source": str(first / "new"), "target": str(other / "linked")}
        assert writer.call("link", params, timeout_sec=LONG_SEC) == "linked"
    assert (other / "linked").read_text() == "written"


def test_a_child_leaves_files_and_folders_alone_in_what_it_writes(tmp_path: Path) -> None:
    """Its parent reads them: a link would lead the parent to what the child may not read, a pipe would make it wait for ever."""
    with child(Access(writes=(tmp_path,))) as writer:
        assert writer.call("plant", {"folder": str(tmp_path)}, timeout_sec=LONG_SEC) == ["folder"]


def test_a_child_that_links_starts_no_processes_for_its_parent_to_reap() -> None:
    with child(Access(programs=True)) as linking:
        assert linking.call("fork_for_parent", {}, timeout_sec=LONG_SEC) is None
        assert linking.call("fork", {}, timeout_sec=LONG_SEC) == "forked"


def test_a_child_chooses_its_own_cores() -> None:
    with child(Access()) as confined:
        assert confined.call("own_cores", {}, timeout_sec=LONG_SEC) == sorted(os.sched_getaffinity(0))


def test_more_folders_end_a_child_that_may_not_read_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("f")
    with child(Access()) as reader:
        first = reader.call("pid", {}, timeout_sec=LONG_SEC)
        assert reader.allow(tmp_path)
        assert reader.call("read", {"path": str(tmp_path / "file")}, timeout_sec=LONG_SEC) == "f"
        second = reader.call("pid", {}, timeout_sec=LONG_SEC)
        assert second != first
        assert not reader.allow(tmp_path)
        assert reader.call("pid", {}, timeout_sec=LONG_SEC) == second


def test_threads_are_no_processes() -> None:
    with child(Access()) as threaded:
        assert threaded.call("threads", {"count": 20}, timeout_sec=LONG_SEC) == 20
        assert threaded.call("fork", {}, timeout_sec=LONG_SEC) is None


def test_a_linker_runs_where_programs_may(tmp_path: Path) -> None:
    with child(Access(programs=True)) as linking:
        assert linking.call("run", {"program": "/bin/true"}, timeout_sec=LONG_SEC) == 0
        assert linking.call("give_up", {}, timeout_sec=LONG_SEC) == "given up"
        assert linking.call("run", {"program": "/bin/true"}, timeout_sec=LONG_SEC) is None
    planted = tmp_path / "planted"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    with child(Access(writes=(tmp_path,), programs=True)) as linking:
        assert linking.call("run", {"program": str(planted)}, timeout_sec=LONG_SEC) is None


def test_a_linker_runs_with_its_files_wherever_the_path_leads(tmp_path: Path) -> None:
    """As of compilers in folders of their own, which package managers and environment modules put on the PATH."""
    linker, on_path, secret = tmp_path / "tools" / "bin" / "ld", tmp_path / "links", tmp_path / "home" / "key"
    for folder in (linker.parent, on_path, tmp_path / "tools" / "lib", secret.parent):
        folder.mkdir(parents=True)
    (tmp_path / "tools" / "lib" / "settings").write_text("s")
    linker.write_text(f'#!/bin/sh\nread setting < {tmp_path}/tools/lib/settings || [ -n "$setting" ]\n')
    linker.chmod(0o755)
    (on_path / "ld").symlink_to(linker)
    secret.write_text("k")
    # Somebody's PATH has their home in it.
    env = {**ENV, "PATH": f"{on_path}:{secret.parent}:{os.environ['PATH']}", "HOME": str(secret.parent)}
    with ChildProcess("reaching_handlers", access=Access(programs=True), env=env) as linking:
        assert linking.call("run", {"program": str(on_path / "ld")}, timeout_sec=LONG_SEC) == 0
        assert linking.call("read", {"path": str(secret)}, timeout_sec=LONG_SEC) is None


def test_what_it_may_connect_to_is_the_internet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as service, child(Access(network=True)) as client:
        params = {"port": service.getsockname()[1]}
        assert client.call("connect", params, timeout_sec=LONG_SEC) == "connected"
        assert client.call("listen", {}, timeout_sec=LONG_SEC) is None


def test_further_folders_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "header.h").write_text("h")
    monkeypatch.setenv(sandbox.FURTHER_READS, f"{tmp_path}:relative:")
    with child(Access()) as reader:
        assert reader.call("read", {"path": str(tmp_path / "header.h")}, timeout_sec=LONG_SEC) == "h"


def test_children_tell_what_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.VARIABLE, "required")
    with child(Access()) as confined:
        assert confined.sandbox is None
        confined.start()
        state = confined.sandbox
    assert state == sandbox_state()
    assert state.is_whole
    assert state.mode is SandboxMode.REQUIRED
    assert f"Landlock {landlock.abi()}" in state.text
    with child(None) as free:
        free.start()
        assert free.sandbox == SandboxState(mode=SandboxMode.OFF, landlock=0, seccomp=False)
        assert free.call("fork", {}, timeout_sec=LONG_SEC) == "forked"


def test_off_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.VARIABLE, "off")
    (tmp_path / "file").write_text("f")
    with child(Access()) as free:
        assert free.call("read", {"path": str(tmp_path / "file")}, timeout_sec=LONG_SEC) == "f"
    assert sandbox_state().text == "no Landlock, no filter of system calls"


@pytest.mark.parametrize(("landlock_version", "filters"), [(0, True), (5, True), (7, False)])
def test_a_process_learns_before_it_needs_a_child_that_none_can_start(
    monkeypatch: pytest.MonkeyPatch, *, landlock_version: int, filters: bool
) -> None:
    monkeypatch.setattr(sandbox, "available_sandbox", lambda: (landlock_version, filters))
    check_sandbox()
    monkeypatch.setenv(sandbox.VARIABLE, "required")
    with pytest.raises(InvalidInputError, match=r"Linux 6\.12") as caught:
        check_sandbox()
    assert caught.value.code == "no-sandbox"


@pytest.mark.parametrize("word", ["on", "REQUIRED", "1", "best_effort"])
def test_an_unknown_mode_is_refused_before_a_child_starts(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.VARIABLE, word)
    with pytest.raises(InvalidInputError, match="TUNEFARM_SANDBOX must be one of required, best-effort, off"):
        sandbox_mode()
    with child(Access()) as never, pytest.raises(InvalidInputError) as caught:
        never.start()
    assert caught.value.code == "invalid-settings"
    assert not never.alive


def test_threads_of_before_are_not_in_a_required_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Landlock holds for the thread that asks, and for what it starts: such a child must not pass as safe."""
    monkeypatch.setenv(sandbox.VARIABLE, "required")
    early = ChildProcess("early_thread_handlers", env=ENV)
    with early, pytest.raises(InvalidInputError, match="1 threads were started before it") as caught:
        early.start()
    assert caught.value.code == "no-sandbox"
    monkeypatch.setenv(sandbox.VARIABLE, "best-effort")
    with ChildProcess("early_thread_handlers", env=ENV) as tolerated:
        tolerated.start()
        assert tolerated.sandbox is not None
        assert tolerated.sandbox.free_threads == 1
        assert not tolerated.sandbox.is_whole


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5, 6])
def test_older_kernels_are_asked_for_what_they_have(abi: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLD_ABI", str(abi))
    with ChildProcess("old_kernel_handlers", env=ENV) as confined:
        confined.start()
        assert confined.sandbox is not None
        assert confined.sandbox.landlock == abi
        assert confined.sandbox.is_whole == (abi >= landlock.ABI_OF_ALL)
        assert confined.call("read", {"path": str(Path(__file__))}, timeout_sec=LONG_SEC) is None
    monkeypatch.setenv(sandbox.VARIABLE, "required")
    with ChildProcess("old_kernel_handlers", env=ENV) as confined:
        if abi >= landlock.ABI_OF_ALL:
            confined.start()
        else:
            with pytest.raises(InvalidInputError, match=f"Landlock {abi} limits less than Landlock 6"):
                confined.start()


def test_a_kernel_without_it_is_no_error_unless_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLD_ABI", "0")
    with ChildProcess("old_kernel_handlers", env=ENV) as confined:
        confined.start()
        assert confined.sandbox is not None
        assert (confined.sandbox.landlock, confined.sandbox.seccomp) == (0, True)
    monkeypatch.setenv(sandbox.VARIABLE, "required")
    confined = ChildProcess("old_kernel_handlers", env=ENV)
    with confined, pytest.raises(InvalidInputError, match="the kernel has no Landlock"):
        confined.start()


HEADERS = {
    "x86_64": (0, Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")),
    "aarch64": (1, Path("/usr/include/asm-generic/unistd.h")),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_of_system_calls_are_the_kernels(machine: str) -> None:
    column, header = HEADERS[machine]
    if not header.is_file():
        pytest.skip("needs the kernel's headers")
    words = [line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR")]
    numbers = {
        line[1].removeprefix("__NR_").removeprefix("__NR3264_"): line[2] for line in words if len(line) > 2
    }
    known = {**seccomp.NEVER, **seccomp.PROGRAMS, **seccomp.SERVERS, **seccomp.SOCKET_PAIRS}
    compared = 0
    for name, pair in known.items():
        if name in numbers and numbers[name].isdigit():
            assert pair[column] == int(numbers[name]), name
            compared += 1
    assert compared > 90


def test_a_filter_fits_the_jumps_of_its_instructions() -> None:
    for machine in seccomp.MACHINES.values():
        for sockets in seccomp.Sockets:
            for starts in (False, True):
                code = seccomp.filter_program(machine, sockets=sockets, may_start_programs=starts)
                assert len(code) % 8 == 0
                assert len(code) // 8 < 200


@pytest.mark.parametrize("has_gpu", [True, False])
@pytest.mark.parametrize("sockets", seccomp.Sockets)
def test_which_sockets_a_child_opens(*, has_gpu: bool, sockets: seccomp.Sockets) -> None:
    """CUDA's driver opens one of this machine; here, in a process of its own, without a GPU."""
    with ChildProcess("reaching_handlers", access=None, env=ENV) as free:
        params = {"has_gpu": has_gpu, "sockets": sockets.value}
        opened = free.call("sockets_after", params, timeout_sec=LONG_SEC)
    local = {"AF_UNIX", "bound", "listens"} if has_gpu and sockets is not seccomp.Sockets.STREAMS else set()
    local |= {"AF_UNIX stream", "pair"} if has_gpu else set()
    streams = {"AF_INET stream", "AF_INET6 stream"} if sockets is not seccomp.Sockets.NONE else set()
    datagrams = {"AF_INET", "AF_INET6"} if sockets is seccomp.Sockets.ALL else set()
    assert set(opened) == local | streams | datagrams


@pytest.mark.skipif(landlock.abi() < landlock.ABI_OF_ALL, reason="needs the whole sandbox")
def test_a_session_on_a_gpu_and_its_children_name_their_threads_and_change_no_settings() -> None:
    """Without that, CUDA 13's driver does not start ("OS call failed"). Seen on an H200, as root."""
    with ChildProcess("gpu_handlers", access=None, env=ENV) as free:
        done = free.call("name_threads", {"gpu": True, "more": []}, timeout_sec=LONG_SEC)
    assert done == ["itself", "a child", "a child with a sandbox of its own"]
    with ChildProcess("gpu_handlers", access=None, env=ENV) as free:
        assert free.call("name_threads", {"gpu": False, "more": []}, timeout_sec=LONG_SEC) == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount")
def test_a_session_on_a_gpu_changes_no_settings_by_other_mounts_of_them(tmp_path: Path) -> None:
    other = tmp_path / "an other root"
    other.mkdir()
    script = f"""
mount --bind /proc '{other}' && mount -t tmpfs none /proc/fs && echo > /proc/fs/setting || exit 9
exec "$@"
"""
    entered = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            sys.executable,
            "-c",
            _TRY_MOUNTS,
            str(HANDLERS),
            str(other),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if entered.returncode == 9:
        pytest.skip("needs the right to mount")
    assert entered.stdout.split() == ["[]"]


_TRY_MOUNTS = """
import sys; sys.path.insert(0, sys.argv[1])
import gpu_handlers
settings = [sys.argv[2] + "/sys/kernel/core_pattern", "/proc/fs/setting"]
done = gpu_handlers.name_threads({"gpu": True, "more": settings})
print([path for path in done if path.startswith("/")])
"""


def test_the_usual_devices_of_a_gpu_are_named_where_nothing_can_be_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "_GPU_DEVICES", ())
    paths = {
        str(path) for path, rights in sandbox._rules(Access(gpu=True), ()) if rights == landlock.USE_DEVICE
    }
    assert {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"} <= paths


@pytest.mark.skipif(platform.machine() not in seccomp.MACHINES, reason="needs a filter")
@pytest.mark.parametrize("sockets", seccomp.Sockets)
@pytest.mark.parametrize("has_gpu", [False, True])
def test_no_open_file_leaves_a_child_through_a_socket_that_it_inherited(
    *, has_gpu: bool, sockets: seccomp.Sockets
) -> None:
    """A deleted file that waits in the parent's end is in no sum of what the child wrote. A relay takes files, and keeps one at most."""
    with ChildProcess("reaching_handlers", access=None, env=ENV) as free:
        params = {"has_gpu": has_gpu, "sockets": sockets.value}
        passed = free.call("sends_after", params, timeout_sec=LONG_SEC)
    assert passed == ["x", *(["open file"] if has_gpu or sockets is not seccomp.Sockets.NONE else [])]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
@pytest.mark.skipif(platform.machine() not in seccomp.MACHINES, reason="needs a filter")
def test_an_ordinary_users_linking_child_cannot_start_processes_without_end() -> None:
    with ChildProcess("reaching_handlers", access=None, env=ENV) as someone:
        count = someone.call("bomb_as", {"user": 54321}, timeout_sec=LONG_SEC)
    assert 0 < count <= 2048 + 8


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
def test_processes_of_other_containers_leave_room_for_a_childs_threads() -> None:
    """The kernel counts by a user's number, which services in many containers share."""
    with ChildProcess("reaching_handlers", access=None, env=ENV) as someone:
        count = someone.call("threads_beside_a_crowd", {"user": 54323}, timeout_sec=LONG_SEC)
    if count in (None, 99):
        pytest.skip("needs namespaces")
    assert count == 20


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
def test_a_user_without_a_home_has_a_sandbox() -> None:
    with ChildProcess("reaching_handlers", access=None, env=ENV) as someone:
        assert someone.call("enter_homeless", {}, timeout_sec=LONG_SEC)
