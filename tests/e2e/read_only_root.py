"""Runs a program that can write no file but in some folders, as a container with a read-only root: by Landlock, and nothing else of it.

python read_only_root.py FOLDER[:FOLDER...] PROGRAM ARGUMENT...
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from pathlib import Path

from tunefarm_tuning.process import landlock

CREATE_RULESET, RESTRICT_SELF = 444, 446
ALWAYS = ("/dev", "/proc")  # which a container has of its own; so no folder may be in there
CHANGE = 0x1FF2 | 1 << 13 | 1 << 14  # write, make, remove, link and truncate


def forbid_writes(but: list[str]) -> None:
    """Limit this process and all that it starts."""
    handled = struct.pack("=Q", CHANGE)
    ruleset = landlock._syscall(CREATE_RULESET, handled, len(handled), 0)
    for path in (*ALWAYS, *but):
        landlock._add(ruleset, path, CHANGE)
    landlock.forbid_new_privileges()
    landlock._syscall(RESTRICT_SELF, ruleset, 0)


def check_refusal(folders: list[str]) -> None:
    """Check that this process can write to these folders, and not beside them."""
    for folder in folders:
        with tempfile.TemporaryFile(dir=folder):
            pass
        beside = Path(folder).resolve().parent
        if any(beside.is_relative_to(Path(other).resolve()) for other in folders):
            continue
        try:
            tempfile.TemporaryFile(dir=beside).close()
        except PermissionError:
            continue
        raise SystemExit(f"{beside} can be written to, as if the root were not read-only")


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    writable = sys.argv[1].split(os.pathsep)
    forbid_writes(writable)
    check_refusal(writable)
    os.execvp(sys.argv[2], sys.argv[2:])
