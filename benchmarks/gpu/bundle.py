"""Carry the environment to a machine with a GPU that has Python and no network: one archive in parts, made here and joined there.

    python -m benchmarks.gpu.bundle make out/bundle --python 3.12          # here: needs a package index
    python3 benchmarks/gpu/bundle.py join out/bundle /tmp/tunefarm         # there: Python alone; prints the interpreter
    /tmp/tunefarm/venv/bin/python -m benchmarks.gpu.report

The versions are those of the lock file. Left out by default is NCCL (250 MB), which XGBoost needs for several GPUs only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PARTS, _ARCHIVE = "parts.json", "site.tar.xz"
_PACKAGES = ("tuning", "db", "services", "workers")
_LEFT_OUT = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")


def main(arguments: list[str] | None = None) -> int:
    """Make a bundle, or join one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write the parts into a folder")
    make.add_argument("folder", type=Path)
    make.add_argument("--python", default="3.12", help="the other machine's version of Python")
    make.add_argument("--part-mib", type=int, default=48, help="the largest size of a part")
    make.add_argument("--without", action="append", default=[], help="a package to leave out")
    joining = commands.add_parser("join", help="make an environment of the parts")
    joining.add_argument("folder", type=Path)
    joining.add_argument("environment", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "join":
        print(join(options.folder, options.environment))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        _install(Path(folder), options.python, {*_LEFT_OUT, *options.without})
        for part in split(Path(folder), options.folder, options.part_mib << 20, options.python):
            print(part, f"{part.stat().st_size >> 20} MiB")
    return 0


def split(site: Path, folder: Path, part_bytes: int, python: str) -> list[Path]:
    """Write a folder's files, for a version of Python, as one compressed archive into parts of at most so many bytes; return these."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("part-*"):
        old.unlink()
    parts = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        archive = Path(scratch) / _ARCHIVE
        _compress(site, archive)
        with archive.open("rb") as whole:
            while data := whole.read(part_bytes):
                parts.append(folder / f"part-{len(parts):03}")
                parts[-1].write_bytes(data)
    digests = {part.name: hashlib.sha256(part.read_bytes()).hexdigest() for part in parts}
    (folder / _PARTS).write_text(json.dumps({"python": python, "parts": digests}, indent=1))
    return parts


def _compress(site: Path, archive: Path) -> None:
    """Write a folder as an archive: with the program ``xz``, which uses all cores and saves a third, if there is one."""
    if (program := shutil.which("xz")) is None:
        with tarfile.open(archive, "w:xz", preset=1) as tar:
            tar.add(site, "site")
        return
    with (
        archive.open("wb") as output,
        subprocess.Popen([program, "-T0", "-6", "-c"], stdin=subprocess.PIPE, stdout=output) as process,
    ):
        assert process.stdin is not None
        with process.stdin, tarfile.open(fileobj=process.stdin, mode="w|") as tar:
            tar.add(site, "site")
    if process.returncode != 0:
        raise OSError(f"xz ended with code {process.returncode}")


def join(folder: Path, environment: Path) -> Path:
    """Make an environment of the parts in a folder, with this checkout's packages; return its interpreter.

    Raises:
        ValueError: If a part is missing or is not what was written, or the parts are for another version of Python.
    """
    bundle = json.loads((folder / _PARTS).read_text())
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if bundle["python"] != here:
        raise ValueError(
            f"the parts are for Python {bundle['python']} and this is {here}: join them by python{bundle['python']}, "
            f"or make them with --python {here}"
        )
    digests: dict[str, str] = bundle["parts"]
    environment.mkdir(parents=True, exist_ok=True)
    archive = environment / _ARCHIVE
    with archive.open("wb") as whole:
        for name, digest in sorted(digests.items()):
            part = folder / name
            data = part.read_bytes() if part.is_file() else b""
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"{part} is {'not what was written' if data else 'missing'}: copy it again")
            whole.write(data)
    with tarfile.open(archive) as tar:
        tar.extractall(environment, filter="data")
    archive.unlink()
    venv.create(environment / "venv", with_pip=False)
    (packages,) = (environment / "venv" / "lib").glob("python*/site-packages")
    paths = [environment.resolve() / "site", *(ROOT / package for package in _PACKAGES), ROOT]
    (packages / "bundle.pth").write_text("".join(f"{path}\n" for path in paths))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    about = packages / f"tunefarm-{version}.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tunefarm\nVersion: {version}\n")
    return environment / "venv" / "bin" / "python"


def _install(site: Path, python: str, without: set[str]) -> None:
    """Install what `tunefarm[embedded]` needs, as locked, for a Linux of x86-64 and a version of Python."""
    uv = shutil.which("uv") or str(ROOT / ".venv-uv" / "bin" / "uv")
    export = ["export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes"]
    locked = subprocess.run(
        [uv, *export, "--extra", "embedded"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    wanted = [line for line in locked.splitlines() if line.partition("==")[0].strip() not in without]
    requirements = site.with_suffix(".txt")
    try:
        requirements.write_text("\n".join(wanted))
        install = ["pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(site)]
        platform = ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
        subprocess.run(
            [uv, *install, *platform, "-r", str(requirements)],
            check=True,
            env={**os.environ, "UV_LINK_MODE": "copy"},
        )
    finally:
        requirements.unlink()


if __name__ == "__main__":
    sys.exit(main())
