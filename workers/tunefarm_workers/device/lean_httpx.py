"""httpx without its command line: that would import click, rich and pygments, which take half of the agent's memory.

httpx imports its command if it can, and goes on without it where click is missing.
"""

from __future__ import annotations

import sys

_HAS_CLICK = "click" in sys.modules
if not _HAS_CLICK:
    sys.modules["click"] = None  # type: ignore[assignment]  # its import fails, as if it were not installed
try:
    import httpx
finally:
    if not _HAS_CLICK:
        del sys.modules["click"]

__all__ = ["httpx"]
