"""A file system of a few megabytes that a test can fill and free."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


class SmallDisk:
    """See `small_disk`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    @property
    def free_bytes(self) -> int:
        usage = os.statvfs(self.path)
        return usage.f_bavail * usage.f_frsize

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk | None]:
    """Mount one there for the time of the block; None where this process may not mount anything."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not in pytest's folders: a killed run leaves the mount, and later runs could not remove a folder that holds it.
    mount_point = Path(tempfile.mkdtemp(prefix="tunefarm-disk-"))
    path.symlink_to(mount_point, target_is_directory=True)
    try:
        if not _mounted(mount_point, size_bytes):
            yield None
            return
        try:
            yield SmallDisk(path)
        finally:
            # Lazily: somebody may still have a log file open there.
            subprocess.run(["umount", "--lazy", str(mount_point)], check=True)
    finally:
        mount_point.rmdir()


def _mounted(mount_point: Path, size_bytes: int) -> bool:
    options = f"size={size_bytes},mode=0700"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tunefarm-test", str(mount_point)],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0
