"""Runs a program that can write no file but in some folders, as a container with a read-only root: by Landlock, and nothing else of it.

python read_only_root.py FOLDER[:FOLDER...] PROGRAM ARGUMENT...
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

from tunefarm_tuning.process import landlock

CREATE_RULESET, RESTRICT_SELF = 444, 446
ALWAYS = ("/dev", "/proc")
CHANGE = 0x1FF2 | 1 << 13 | 1 << 14  # write, make, remove, link and truncate


def forbid_writes(but: list[str]) -> None:
    """Limit this process and all that it starts."""
    handled = struct.pack("=Q", CHANGE)
    ruleset = landlock._syscall(CREATE_RULESET, handled, len(handled), 0)
    for path in (*ALWAYS, *but):
        landlock._add(ruleset, path, CHANGE)
    landlock.forbid_new_privileges()
    landlock._syscall(RESTRICT_SELF, ruleset, 0)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    forbid_writes(sys.argv[1].split(os.pathsep))
    os.execvp(sys.argv[2], sys.argv[2:])
