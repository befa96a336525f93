"""Kernels that were built lately, found by their code."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from tunefarm_tuning.core.output_file import link_or_copy
from tunefarm_tuning.space.config import Config

_MAX_CONFIGS = 1 << 14


@dataclass(frozen=True, slots=True)
class Known:
    """What a config became.

    Attributes:
        config: As applied.
        code: Digest of the scheduled kernel; two configs with equal code are one kernel.
    """

    config: Config
    code: str


class KernelCache:
    """Keeps artifacts, the most recently used ones, for as long as its builder lives.

    A confirmed config, a repeated one, and a config that comes to the code of another are then not built again. Of an
    artifact it keeps a link of its own, so that the caller may delete his; what it gives out has a fresh path.
    Concurrency: any thread.

    Args:
        folder: Private to the cache; it must exist, on one file system with the artifacts.
        max_bytes: Of all artifacts kept; 0 keeps none.

    Attributes:
        hits: Kernels given out so far.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[Path, int] = OrderedDict()
        self._bytes = 0
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self.hits = 0

    def known(self, task: str, config: Config) -> Known | None:
        """Return what a config became when it was last applied."""
        with self._lock:
            return self._known.get((task, config.key))

    def learn(self, task: str, asked: Config, known: Known) -> None:
        """Note what a config became; as applied it stays what it is."""
        with self._lock:
            for config in (asked, known.config):
                self._known[task, config.key] = known
                self._known.move_to_end((task, config.key))
            while len(self._known) > _MAX_CONFIGS:
                self._known.popitem(last=False)

    def prefix(self, task: str) -> str:
        """Return the start of the paths of a task's kernels; the end is the code."""
        # A task's handle has what no file name may have.
        return f"{self._folder}/{hashlib.sha256(task.encode()).hexdigest()[:32]}-"

    def give(self, task: str, code: str, output: Path) -> bool:
        """Put the kernel of a code at `output`, if it is still here; return whether it was."""
        path = self._path(task, code)
        with self._lock:
            if path not in self._sizes or not link_or_copy(path, output):
                return False
            self._touch(path)
            return True

    def found(self, task: str, code: str) -> None:
        """Note that somebody took the kernel of a code by its path."""
        with self._lock:
            self._touch(self._path(task, code))

    def keep(self, task: str, code: str, artifact: Path) -> None:
        """Keep the kernel that was built for a code; the oldest go where there is no more room."""
        path = self._path(task, code)
        with self._lock:
            try:
                size = artifact.stat().st_size
            except OSError:  # the builder was closed
                return
            if path in self._sizes or size > self._max_bytes or not link_or_copy(artifact, path):
                return
            self._sizes[path] = size
            self._bytes += size
            while self._bytes > self._max_bytes:
                oldest, freed = self._sizes.popitem(last=False)
                oldest.unlink(missing_ok=True)
                self._bytes -= freed

    def _touch(self, path: Path) -> None:
        self.hits += 1
        if path in self._sizes:
            self._sizes.move_to_end(path)

    def _path(self, task: str, code: str) -> Path:
        return Path(f"{self.prefix(task)}{code}")
