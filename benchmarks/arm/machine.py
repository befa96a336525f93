"""A 64-bit Arm machine, emulated by QEMU's user mode: the device agent and artifacts run on it as on a board.

`make_machine` makes it once, in half a minute and 600 MB of the user's cache: QEMU, Debian's Python for arm64, and what
``tunefarm[device]`` installs there, in the versions of the lock file. Nothing is installed on this system, and no kernel module is
needed. What a board computes is right or wrong there; how long it takes says nothing. QEMU's programs for 32-bit Arm and RISC-V come along:
of these there is no TVM, but single kernels run.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import platformdirs
import psutil
from benchmarks.search.machine import ROOT

_QEMU, _QEMU_PACKAGE = "qemu-aarch64-static", "qemu-user-static"
_OTHER_QEMUS = ("qemu-arm-static", "qemu-riscv64-static")
_PYTHON = "python3.11"
_PACKAGES = (_PYTHON, "libstdc++6")
_TIMEOUT_SEC = 600.0
_UNUSED_SEC = 7 * 86400.0
_SOURCES = ("tuning", "db", "services", "workers")
_FEATURES_OF_A_PI = "fp asimd evtstrm crc32 cpuid"
_FEATURES_OF_N1 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCpu:
    """A CPU that QEMU emulates, and what Linux says of it; `features` are no more than QEMU has."""

    name: str
    part: str
    features: str

    @property
    def cpuinfo(self) -> str:
        core = (
            f"BogoMIPS\t: 50.00\nFeatures\t: {self.features}\nCPU implementer\t: 0x41\n"
            f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {self.part}\nCPU revision\t: 1\n\n"
        )
        return "".join(f"processor\t: {number}\n{core}" for number in range(2))


CORTEX_A72 = ArmCpu(name="cortex-a72", part="0xd08", features=_FEATURES_OF_A_PI)
"""A Raspberry Pi 4: neither dot products nor AES."""
CORTEX_A76 = ArmCpu(name="cortex-a76", part="0xd0b", features=_FEATURES_OF_N1)
"""An RK3588's large cores, a Raspberry Pi 5: as a Neoverse N1."""
NEOVERSE_N1 = ArmCpu(name="neoverse-n1", part="0xd0c", features=_FEATURES_OF_N1)
"""A Graviton2: dot products and arithmetic of 16-bit floats."""
MAX = ArmCpu(
    name="max", part="0x051", features=f"{_FEATURES_OF_N1} jscvt fcma sve sve2 svei8mm i8mm svebf16 bf16"
)
"""All that QEMU has, under a number that LLVM does not know: matrix products of bytes and of bfloat16, and SVE."""


class HungError(subprocess.TimeoutExpired):
    """A program of the machine did not end in time; `cpu_sec` tells a loop from a wait."""

    def __init__(self, command: object, timeout_sec: float, cpu_sec: float) -> None:
        super().__init__(command, timeout_sec)  # type: ignore[arg-type]
        self.cpu_sec = cpu_sec

    def __str__(self) -> str:
        return f"did not end within {self.timeout:.0f} s, in which it computed for {self.cpu_sec:.0f} s"


class CannotBeMade(Exception):  # noqa: N818
    """What this machine lacks to make the emulated one."""


@dataclass(frozen=True)
class ArmMachine:
    """An emulated machine in its folder."""

    folder: Path
    cpu: ArmCpu

    @cached_property
    def python(self) -> Path:
        """The machine's Python as a program of this one; it starts itself as ``sys.executable``."""
        home = self.folder / "cpus" / self.cpu.name
        program = home / "bin" / "python"
        root, site = home / "root", home / "lib" / _PYTHON / "site-packages"
        for folder in (program.parent, root / "proc", site.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for entry in (self.folder / "root").iterdir():
            _link(root / entry.name, entry)
        _link(site, self.folder / "site-packages")
        (root / "proc" / "cpuinfo").write_text(self.cpu.cpuinfo)
        (home / "pyvenv.cfg").write_text(
            f"home = {root}/usr/bin\ninclude-system-site-packages = false\nversion = 3.11\n"
        )
        program.write_text(
            f'#!/bin/sh\nexec {self.folder}/{_QEMU} -cpu {self.cpu.name} -L {root} -0 {program} {root}/usr/bin/{_PYTHON} "$@"\n'
        )
        program.chmod(0o755)
        return program

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which its Python finds tunefarm."""
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "TUNEFARM_", "VIRTUAL_ENV"))
        }
        return {**plain, "PYTHONPATH": os.pathsep.join(str(ROOT / source) for source in _SOURCES)}

    def copy_to(self, folder: Path) -> ArmMachine:
        """Make a machine with a TVM of its own, which may be changed."""
        site = folder / "site-packages"
        site.mkdir(parents=True)
        for entry in (self.folder / "site-packages").iterdir():
            if entry.name == "tvm":
                shutil.copytree(entry, site / entry.name)
            else:
                _link(site / entry.name, entry)
        for name in ("root", _QEMU):
            _link(folder / name, self.folder / name)
        return ArmMachine(folder, self.cpu)

    def run(self, *arguments: object, cwd: Path | None = None, timeout_sec: float = _TIMEOUT_SEC) -> str:
        """Run its Python; return what it prints.

        Raises:
            HungError: If it did not end in time.
        """
        process = subprocess.Popen(
            [self.python, *map(str, arguments)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )
        try:
            output, errors = _output(process, timeout_sec)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, errors[-4000:]
        return output


def _output(process: subprocess.Popen[str], timeout_sec: float) -> tuple[str, str]:
    """Return what a process prints to its two streams until it ends.

    Time in which this process was stopped, as by SIGSTOP or a suspended laptop, does not count: each wait counts for a second.

    Raises:
        HungError: If it did not end in time; it still runs.
    """
    for _ in range(math.ceil(timeout_sec)):
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=1.0)
    spent = psutil.Process(process.pid).cpu_times()
    raise HungError(process.args, timeout_sec, spent.user + spent.system)


def make_machine(cpu: ArmCpu) -> ArmMachine:
    """Return a machine with such a CPU, made at the first call of all processes of this user.

    Raises:
        CannotBeMade: If it cannot be made here.
    """
    return ArmMachine(_made(), cpu)


def make_emulator(machine: str) -> Path:
    """Return QEMU's program for statically linked programs of a machine: ``"aarch64"``, ``"arm"`` or ``"riscv64"``.

    Raises:
        CannotBeMade: If it cannot be had here.
    """
    return _made() / f"qemu-{machine}-static"


def _made() -> Path:
    versions = hashlib.sha256((ROOT / "uv.lock").read_bytes() + Path(__file__).read_bytes()).hexdigest()
    base = platformdirs.user_cache_path("tunefarm-tests", appauthor=False)
    folder = base / f"arm-{versions[:16]}"
    base.mkdir(parents=True, exist_ok=True)
    with (base / "arm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes one makes it
        if folder.exists():
            os.utime(folder)
            return folder
        for old in base.glob("arm-*"):
            if old.stat().st_mtime < time.time() - _UNUSED_SEC:  # another checkout may be using a newer one
                shutil.rmtree(old, ignore_errors=True)
        # What failed is made anew by the next run; a mark keeps the other tests of this one from trying again.
        failed = base / f"arm.failed-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
        if failed.exists():
            raise CannotBeMade(failed.read_text())
        for mark in base.glob("arm.failed-*"):
            mark.unlink()
        part = base / "arm.part"
        shutil.rmtree(part, ignore_errors=True)
        try:
            _make(part)
        except (CannotBeMade, OSError, subprocess.SubprocessError) as error:
            failed.write_text(str(error))
            shutil.rmtree(part, ignore_errors=True)
            raise CannotBeMade(str(error)) from error
        part.rename(folder)
    return folder


def _make(folder: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise CannotBeMade(f"there is no {tool}")
    packages = folder / "packages"
    packages.mkdir(parents=True)
    programs = [shutil.which(name) for name in (_QEMU, *_OTHER_QEMUS)]
    if None in programs:
        _call("apt-get", "-qq", "download", _QEMU_PACKAGE, cwd=packages)
        (archive,) = packages.glob("*.deb")
        _call("dpkg-deb", "-x", archive, folder / "qemu")
        archive.unlink()
        programs = [str(folder / "qemu" / "usr" / "bin" / name) for name in (_QEMU, *_OTHER_QEMUS)]
    for program in filter(None, programs):
        shutil.copy2(program, folder)
    shutil.rmtree(folder / "qemu", ignore_errors=True)
    _install_debian(folder, packages)
    _install_wheels(folder)
    shutil.rmtree(packages)


def _install_debian(folder: Path, packages: Path) -> None:
    """Unpack Python and what it depends on, by an apt of its own: the system's has no foreign architecture."""
    apt = folder / "apt"
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    config = apt / "apt.conf"
    config.write_text(
        'APT::Architecture "arm64"; APT::Architectures { "arm64"; }; APT::Install-Recommends "false";\n'
        f'APT::Sandbox::User "{os.environ.get("USER", "root")}"; Debug::NoLocking "1"; Dir::State "{apt}";\n'
        f'Dir::State::status "{apt}/status"; Dir::State::lists "{apt}/lists"; Dir::Cache "{apt}";\n'
        f'Dir::Cache::archives "{packages}"; Dir::Etc::preferencesparts "/dev/null";\n'
    )
    (packages / "partial").mkdir()
    environment = {**os.environ, "APT_CONFIG": str(config)}
    _call("apt-get", "-qq", "update", env=environment)
    _call("apt-get", "-qq", "install", "--yes", "--download-only", *_PACKAGES, env=environment)
    for archive in packages.glob("*.deb"):
        _call("dpkg-deb", "-x", archive, folder / "root")
    shutil.rmtree(apt)


def _install_wheels(folder: Path) -> None:
    """Install what the extra ``device`` has for this architecture, by the lock file."""
    uv = shutil.which("uv") or str(ROOT / ".venv-uv" / "bin" / "uv")
    requirements = folder / "requirements.txt"
    export = ("export", "--quiet", "--frozen", "--extra", "device", "--no-dev", "--no-emit-project")
    _call(uv, *export, "--output-file", requirements, cwd=ROOT)
    _call(
        *(
            uv,
            "pip",
            "install",
            "--quiet",
            "--requirements",
            requirements,
            "--target",
            folder / "site-packages",
        ),
        *(
            "--python-version",
            "3.11",
            "--python-platform",
            "aarch64-manylinux_2_28",
            "--only-binary",
            ":all:",
        ),
        *("--link-mode", "copy"),
    )
    if sys.version_info[:2] == (3, 11):  # the emulated Python would take minutes for it
        code = [folder / "site-packages", folder / "root" / "usr" / "lib" / _PYTHON]
        _call(sys.executable, "-m", "compileall", "-q", "-j", "2", *code, check=False)


def _call(
    *command: object, cwd: Path | None = None, env: dict[str, str] | None = None, check: bool = True
) -> None:
    words: Sequence[str] = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, timeout=_TIMEOUT_SEC, check=False
    )
    if check and done.returncode != 0:
        raise CannotBeMade(f"{' '.join(words[:3])} failed: {done.stderr.strip()[-300:]}")


def _link(link: Path, to: Path) -> None:
    if not link.is_symlink():
        link.symlink_to(to)
