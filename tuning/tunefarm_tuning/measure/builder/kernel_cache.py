"""Cache of recently built kernels, by the digest of their code."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.output_file import link_or_copy
from tunefarm_tuning.space.config import Config

_MAX_CONFIGS = 1 << 14


@dataclass(frozen=True, slots=True)
class Known:
    """A config as applied before, and the digest of its scheduled kernel: configs of equal `code` give the same kernel."""

    config: Config
    code: str


class KernelCache:
    """Keeps the most recently used artifacts, as long as its builder lives.

    Configs that are confirmed, repeated, or equal to another in code are then not built again. The cache keeps a link of its own to
    an artifact, so callers may delete theirs; every artifact it returns has a new path.
    Concurrency: any thread.

    Args:
        folder: Private to the cache; it must exist, on one file system with the artifacts. Builders read it, and write elsewhere.
        max_bytes: Size of all artifacts that are kept, in bytes; 0 keeps none.

    Attributes:
        hits: How many kernels were reused so far.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self.folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[Path, int] = OrderedDict()
        self._facts: dict[Path, dict[str, Any]] = {}
        self._bytes = 0
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self.hits = 0

    def known(self, task: str, config: Config) -> Known | None:
        """Return the config as applied and its code; None if it was not applied recently."""
        with self._lock:
            return self._known.get((task, config.key))

    def learn(self, task: str, requested: Config, known: Known) -> None:
        """Store the config as applied and its code, for the requested config and for the applied one."""
        with self._lock:
            for config in (requested, known.config):
                self._known[task, config.key] = known
                self._known.move_to_end((task, config.key))
            while len(self._known) > _MAX_CONFIGS:
                self._known.popitem(last=False)

    def prefix(self, task: str) -> str:
        """Return the prefix of the paths of a task's kernels; the code follows it."""
        # A task's handle has characters that a file name cannot have.
        return f"{self.folder}/{hashlib.sha256(task.encode()).hexdigest()[:32]}-"

    def give(self, task: str, code: str, output: Path) -> bool:
        """Copy or link the kernel of a code to `output`; return whether the cache still has it."""
        path = self._path(task, code)
        with self._lock:
            if path not in self._sizes or not link_or_copy(path, output):
                return False
            self._touch(path)
            return True

    def note_use(self, task: str, code: str) -> None:
        """Count a kernel that a child took by its path as used."""
        with self._lock:
            self._touch(self._path(task, code))

    def facts(self, task: str, code: str) -> dict[str, Any]:
        """Return the facts that were kept with the kernel of a code; empty if it is gone."""
        with self._lock:
            return dict(self._facts.get(self._path(task, code), {}))

    def keep(self, task: str, code: str, artifact: Path, facts: Mapping[str, Any]) -> None:
        """Keep the kernel that was built for a code, and its facts; drop the least recently used ones if the cache is full."""
        path = self._path(task, code)
        with self._lock:
            try:
                size = artifact.stat().st_size
            except OSError:  # the builder was closed
                return
            if path in self._sizes or size > self._max_bytes or not link_or_copy(artifact, path):
                return
            self._sizes[path] = size
            self._facts[path] = dict(facts)
            self._bytes += size
            while self._bytes > self._max_bytes:
                oldest, freed = self._sizes.popitem(last=False)
                oldest.unlink(missing_ok=True)
                del self._facts[oldest]
                self._bytes -= freed

    def _touch(self, path: Path) -> None:
        self.hits += 1
        if path in self._sizes:
            self._sizes.move_to_end(path)

    def _path(self, task: str, code: str) -> Path:
        return Path(f"{self.prefix(task)}{code}")
