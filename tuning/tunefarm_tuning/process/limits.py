"""Limits of a child process: memory, time, files, answers."""

from __future__ import annotations

import json
import resource
from dataclasses import asdict, dataclass
from typing import Self

WORKLOADS_BYTES = 128 << 20
"""`ChildLimits.reply_bytes` of children that answer with all computations of a network, or with texts of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """Limits that the child sets for itself before it imports its module. Core dumps are always off.

    Attributes:
        memory_bytes: Address space. None for a child that uses CUDA: its driver reserves far more
            address space than it uses.
        cpu_sec: CPU seconds of the child's whole life, so only for children of one call.
        file_bytes: Largest file that it may write.
        reply_bytes: Longest answer, which its parent enforces. One that is made for it takes 24 times as much once it is read.
    """

    memory_bytes: int | None = 8 << 30
    cpu_sec: int | None = None
    file_bytes: int | None = 4 << 30
    reply_bytes: int = 16 << 20

    def to_text(self) -> str:
        """Return the limits as text for `from_text` (a command-line argument)."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def apply(self) -> None:
        """Limit the calling process."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for kind, value in (
            (resource.RLIMIT_AS, self.memory_bytes),
            (resource.RLIMIT_FSIZE, self.file_bytes),
        ):
            if value is not None:
                lower(kind, value, value)
        if self.cpu_sec is not None:
            # The soft limit sends SIGXCPU, which says why; the hard one SIGKILL, which does not.
            lower(resource.RLIMIT_CPU, self.cpu_sec, self.cpu_sec + 5)


def lower(kind: int, soft: int, hard: int) -> None:
    """Set a limit of the calling process, but never above the present hard limit, which an ordinary user may not raise."""
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))
