"""Give a file a second path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def place(source: Path, target: Path) -> bool:
    """Make `target` a file with the content of `source`: a link where the file system has links, else a copy.

    Returns:
        Whether it is there now; it is not where `source` is missing, or `target` was there before.
    """
    try:
        os.link(source, target)
    except (FileNotFoundError, FileExistsError):
        return False
    except OSError:
        try:
            shutil.copyfile(source, target)
        except OSError:
            target.unlink(missing_ok=True)
            return False
    return True
