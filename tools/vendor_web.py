"""Fetch the dashboard's third-party files, or check them against the lock: ``--check`` needs no network.

They come out of npm packages, through the `npm` command and whatever registry it is set up with. The lock pins each
package's version and the SHA-256 of its tarball and of every file that is kept. To take another version, change it in
the lock and run ``python tools/vendor_web.py --update``.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "services/tunefarm_api/web/static/vendor"
LOCK = FOLDER / "lock.json"


def main(argv: list[str] | None = None) -> int:
    """Fetch or check. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="only compare the files here with the lock")
    how.add_argument(
        "--update", action="store_true", help="write the checksums of what was fetched to the lock"
    )
    options = parser.parse_args(argv)
    packages: list[dict[str, Any]] = json.loads(LOCK.read_text(encoding="utf-8"))["packages"]
    wrong = check(packages) if options.check else fetch(packages, update=options.update)
    for line in wrong:
        sys.stderr.write(f"vendor_web: {line}\n")
    return 1 if wrong else 0


def check(packages: list[dict[str, Any]]) -> list[str]:
    """Return the differences between the folder and the lock."""
    locked = {file["name"]: file["sha256"] for package in packages for file in package["files"]}
    there = {path.name: _sha256(path.read_bytes()) for path in FOLDER.iterdir() if path != LOCK}
    return [
        f"{name} is {'not in the lock' if name not in locked else 'missing' if name not in there else 'not as locked'}"
        for name in sorted(locked.keys() | there.keys())
        if locked.get(name) != there.get(name)
    ]


def fetch(packages: list[dict[str, Any]], *, update: bool) -> list[str]:
    """Write the files unless a checksum differs from the lock; return the errors."""
    wrong = []
    for package in packages:
        tarball = _pack(package["name"], package["version"])
        kept = _files(tarball, {file["from"] for file in package["files"]})
        hashes = {"tarball_sha256": _sha256(tarball)} | {name: _sha256(data) for name, data in kept.items()}
        if update:
            package["tarball_sha256"] = hashes["tarball_sha256"]
            for file in package["files"]:
                file["sha256"] = hashes[file["from"]]
        locked = {"tarball_sha256": package.get("tarball_sha256")} | {
            file["from"]: file.get("sha256") for file in package["files"]
        }
        if locked != hashes:
            wrong.append(f"{package['name']} {package['version']} is not what was locked")
            continue
        for file in package["files"]:
            (FOLDER / file["name"]).write_bytes(kept[file["from"]])
    if update:
        LOCK.write_text(json.dumps({"packages": packages}, indent=2) + "\n", encoding="utf-8")
    return wrong


def _pack(name: str, version: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", f"{name}@{version}"],  # noqa: S607
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (tarball,) = Path(folder).iterdir()
        return tarball.read_bytes()


def _files(tarball: bytes, names: set[str]) -> dict[str, bytes]:
    files = {}
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name in names else None
            if file is not None:
                files[member.name] = file.read()
    return files


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
