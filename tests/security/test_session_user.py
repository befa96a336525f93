"""Where the agent is root, sessions run as another user: without any sandbox they get at nothing of the agent's, and measure."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from device_processes import compile_library
from gateway_client import LeaseHolder
from gateway_process import GatewayProcess
from real_farm import network, real_farm
from waiting import wait_until

from tunefarm_app.devices.agent_info import sessions_of
from tunefarm_app.identity.authority import device_identity
from tunefarm_db.repositories.records.records import RecordFilter

USER = "nobody"
OPEN = str(Path(__file__).parents[1] / "support" / "devices" / "in_open_namespace.sh")
BECOME = "import os, subprocess, sys; os.setgroups([]); os.setgid({gid}); os.setuid({uid}); sys.exit(subprocess.call({command}))"

SOURCE = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define KERNEL(name) int __tvm_ffi_##name(void *self, const void *args, int32_t n, void *result)
static int reads(const char *path) { char c; int fd = open(path, O_RDONLY), got = fd < 0 ? -1 : (int)read(fd, &c, 1); if (fd >= 0) close(fd); return got > 0; }
static int writes(const char *path) { int fd = open(path, O_WRONLY | O_CREAT, 0600); if (fd >= 0) close(fd); return fd >= 0; }
static int traces(int pid) { if (ptrace(PTRACE_ATTACH, pid, 0, 0)) return 0; waitpid(pid, 0, __WALL); ptrace(PTRACE_DETACH, pid, 0, 0); return 1; }
#define TRY(attack) if (attack) fprintf(report, "%s\n", #attack);
KERNEL(attack) {
  FILE *report = fopen("report", "w");
  TRY(reads(SECRET)) TRY(chmod(SECRET, 0644) == 0) TRY(writes(BESIDE)) TRY(reads(ENVIRON))
  TRY(kill(AGENT, 0) == 0) TRY(traces(AGENT)) TRY(setuid(0) == 0) TRY(getgroups(0, 0) > 0)
  TRY(writes("own"))
  fclose(report);
  return 0;
}
"""
BY_DESIGN = {'writes("own")'}
ATTACKS = {
    "reads(SECRET)",
    "chmod(SECRET, 0644) == 0",
    "writes(BESIDE)",
    "reads(ENVIRON)",
    "kill(AGENT, 0) == 0",
}


OF_A_SERVICE = r"""
import json, subprocess
from tunefarm_workers.device.rpc.session_user import choose
def rights(options):
    shown = subprocess.run(["grep", "-E", "^(Uid|Groups|Cap(Eff|Prm|Amb)):", "/proc/self/status"], capture_output=True, text=True, **options)
    return {name: value.split() for name, value in (line.split(":") for line in shown.stdout.splitlines())}
before = rights({})
chosen = choose("daemon")
print(json.dumps({"before": before, "own": rights({}), "sessions": rights(chosen.user.options())}))
"""


def _is_possible() -> bool:
    """Whether a process here can be another user's, and that user read this Python."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    entry = pwd.getpwnam(USER)
    command = [sys.executable, "-c", "import tunefarm_workers"]
    become = BECOME.format(gid=entry.pw_gid, uid=entry.pw_uid, command=command)
    call = [OPEN, sys.executable, "-c", become]
    return subprocess.run(call, capture_output=True, check=False, cwd="/").returncode == 0


pytestmark = pytest.mark.skipif(
    not _is_possible(), reason="needs root, which may start other users' processes"
)


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="tunefarm-room-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("user", "measures"),
    [
        (USER, False),
        pytest.param(USER, True, marks=pytest.mark.exhaustive),
        pytest.param("root", False, marks=pytest.mark.exhaustive),
    ],
)
def test_a_session_is_another_users(tmp_path: Path, room: Path, user: str, *, measures: bool) -> None:
    secret, files = room / "secret", room / "files"
    secret.write_text("the agent's own")
    secret.chmod(0o600)
    files.mkdir()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {OPEN} {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment = {"TUNEFARM_SANDBOX": "off", "TMPDIR": str(files), "SECRET_OF_THE_AGENT": "s"}
    with (
        closing(GatewayProcess(tmp_path / "keys")) as gateway,
        real_farm(
            tmp_path,
            environment=environment,
            options=["--session-user", user],
            python=str(python),
            gateway=gateway,
        ) as real,
    ):
        farm, device = real.farm, real.device()
        server = real.server()
        assert server.username() == user
        environ = server.environ()
        assert ("SECRET_OF_THE_AGENT" in environ) == (user == "root")
        wait_until(lambda: sessions_of(real.device().info)[0], "the agent to say who runs sessions")
        assert sessions_of(real.device().info)[1] == (user == "root")
        if measures:
            job = farm.submit(farm.ready_model(network()), trials=6, seed=0, round_size=3)
            farm.finish()
            with farm.services.uow.read() as repos:
                records = repos.records.query(RecordFilter(job_id=job.id)).items
            assert any(record.outcome == "ok" for record in records)
        agent = psutil.Process(server.ppid())
        defines = {
            "SECRET": f'"{secret}"',
            "BESIDE": f'"{room / "planted"}"',
            "ENVIRON": f'"/proc/{agent.pid}/environ"',
            "AGENT": str(agent.pid),
        }
        source = "\n".join([*(f"#define {name} {text}" for name, text in defines.items()), SOURCE])
        library = compile_library(source, tmp_path / "kernels.so")
        rpc_key = real.agent.rpc_key
        with closing(LeaseHolder(gateway, device_identity(device.id, rpc_key), 10_000, library)) as holder:
            holder.open()
            holder.run("attack")
            where = files if user == USER else real.agent.work_dir
            (report,) = where.glob("**/session-*/report")
            achieved = set(report.read_text().splitlines())
            assert (report.stat().st_uid == 0) == (user == "root")
            holder.leave()
        real.agent.end(15)
        assert list(files.iterdir()) == [], "nothing is left of its sessions"
    if user == USER:
        assert achieved == BY_DESIGN
    else:
        assert achieved >= ATTACKS | BY_DESIGN, "what an agent's own user does"


def test_an_agent_with_rights_of_a_service_hands_none_of_them_on() -> None:
    """What systemd's AmbientCapabilities= gives would be inherited by every program that the agent starts."""
    entry = pwd.getpwnam(USER)
    rights = "+chown,+kill,+setgid,+setuid"
    become = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    become += [f"--inh-caps={rights}", f"--ambient-caps={rights}"]
    script = f"import os; os.execvp('setpriv', {[*become, sys.executable, '-c', OF_A_SERVICE]})"
    environment = {**os.environ, "TMPDIR": "/tmp"}
    answer = subprocess.run(
        [OPEN, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    none = ["0000000000000000"]
    assert told["before"]["CapEff"] == ["00000000000000e1"], "the rights were there"
    assert {told["own"][name][0] for name in ("CapEff", "CapPrm", "CapAmb")} == set(none)
    assert {told["sessions"][name][0] for name in ("CapEff", "CapPrm", "CapAmb")} == set(none)
    assert told["sessions"]["Uid"] == [str(pwd.getpwnam("daemon").pw_uid)] * 4
    assert told["sessions"]["Groups"] == []
