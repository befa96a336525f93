"""Names of what a job's seconds go to, for the page and the command."""

from __future__ import annotations

_WORDS = {
    "waiting": "waiting",
    "upload": "upload",
    "step": "the farm's own work",
    "phase": "the compiler's own work",
    "call": "other work of children",
    "start": "starting children (imports of TVM)",
    "graph": "reading the network, graph passes, schedules",
    "reference": "running the reference",
    "run": "running kernels and the network",
    "link": "linking",
    "llvm": "LLVM",
    "timing": "timing",
}


def trace_words(kind: str) -> str:
    """Return the words for a kind of time in a job's trace; an unknown kind as it is."""
    return _WORDS.get(kind, kind)
