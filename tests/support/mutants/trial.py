"""One mutant through the import: how it ended, and what was left behind."""

from __future__ import annotations

import ctypes
import os
import resource
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from mutants.draw import Mutant
from mutants.watch import Ground, Watch
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError, TunefarmError
from tunefarm_tuning.frontend import importing, stages
from tunefarm_tuning.process.child import ChildProcess
from tunefarm_tuning.process.limits import WORKLOADS_BYTES, ChildLimits
from tunefarm_tuning.process.model_child import CHILD_ENVIRONMENT, ImportLimits
from tunefarm_tuning.process.sandbox import Access

LIMIT_SEC = 30.0
_STAGE_SEC = 45.0
_LONGEST_MESSAGE = 2500
_IMPORTS_OF_A_CHILD = 150
_SUBREAPER = 36
ENDINGS = {"import-crashed": "crashed", "import-timeout": "timed out", "import-memory": "out of memory"}
"""Codes of errors in which a child had to be stopped, or fell."""


@dataclass(frozen=True)
class Outcome:
    """How an import ended.

    Attributes:
        word: ``accepted``, ``refused``, one of `ENDINGS`, or ``unclear``: an error that is none of the documented ones, or whose
            message is not for people.
        code: Of the error.
        message: Of the error.
        sec: How long it took.
        cpu_sec: How much processor time it and its children took, which other work on the machine does not change.
        touched: Files that were opened or changed, and should not have been.
        left: Processes that were left.
    """

    word: str
    code: str
    message: str
    sec: float
    touched: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    cpu_sec: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether the import kept what docs/security.md promises."""
        is_late = self.word != "accepted" and self.sec > LIMIT_SEC
        return self.word != "unclear" and not is_late and not self.touched and not self.left


def adopt_orphans() -> None:
    """Let processes whose parents have ended become children of this one, so that none is missed."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def take(
    mutant: Mutant, ground: Ground, watch: Watch, *, kept: Callable[[], Iterable[int]] = tuple
) -> Outcome:
    """Import a mutant.

    Args:
        mutant: Its file.
        ground: Where it is written.
        watch: Of the ground.
        kept: Returns, after the import, the ids of processes that may stay.
    """
    ground.model.write_bytes(mutant.data)
    watch.events()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    began, cpu_began = time.monotonic(), _cpu_sec()
    outcome = _imported(ground.model)
    sec, cpu_sec = time.monotonic() - began, _cpu_sec() - cpu_began
    serving = set(kept())
    left = [
        f"{process.pid} {' '.join(process.cmdline()[-3:])}"
        for process in psutil.Process().children(recursive=True)
        if process.pid not in before | serving and process.status() != psutil.STATUS_ZOMBIE
    ]
    return replace(
        outcome,
        sec=round(sec, 2),
        touched=tuple(watch.events()),
        left=tuple(left),
        cpu_sec=round(cpu_sec, 2),
    )


def _cpu_sec() -> float:
    """Return the processor time of this process, of its children, and of those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = child.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def _imported(path: Path) -> Outcome:
    limits = ImportLimits(memory_bytes=4 << 30, timeout_sec=_STAGE_SEC, cpu_sec=int(_STAGE_SEC))
    try:
        importing.import_model(path, limits=limits)
    except (InvalidModelError, InvalidInputError) as error:
        word = ENDINGS.get(error.code, "refused") if _is_clear(error, path) else "unclear"
        return Outcome(word, error.code, error.message, 0.0)
    except TunefarmError as error:
        return Outcome("unclear", error.code, f"{error.message} {error.fields.get('traceback', '')}", 0.0)
    except Exception as error:
        return Outcome("unclear", type(error).__name__, str(error), 0.0)
    return Outcome("accepted", "", "", 0.0)


def _is_clear(error: TunefarmError, path: Path) -> bool:
    """Whether a message is one for people: short, printable, and without paths of this machine."""
    message = error.message
    return (
        0 < len(message) <= _LONGEST_MESSAGE
        and str(path.parent) not in message
        and not any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in message)
    )


class ServingChildren:
    """Children that serve import after import, as long as they answer: a start takes longer than most mutants.

    They have the sandbox and the memory of those that serve one, as all mutants are written to one path; no limit of their
    processor time.
    """

    def __init__(self) -> None:
        self._children: dict[str, tuple[ChildProcess, int]] = {}

    @contextmanager
    def import_child(
        self, module: str, path: Path, limits: ImportLimits, *_: object
    ) -> Iterator[ChildProcess]:
        """Do what `stages.import_child` does, with a child that may have served others."""
        child, imports = self._children.get(module, (None, 0))
        if child is None or imports >= _IMPORTS_OF_A_CHILD:
            if child is not None:
                child.close()
            own_limits = ChildLimits(
                memory_bytes=limits.memory_bytes, file_bytes=0, reply_bytes=WORKLOADS_BYTES
            )
            access = Access(reads=(path.absolute(),))
            child = ChildProcess(module, limits=own_limits, access=access, env=CHILD_ENVIRONMENT)
            imports = 0
        self._children[module] = (child, imports + 1)
        yield child

    def pids(self) -> set[int]:
        """Return the processes that serve now."""
        return {child.pid for child, _ in self._children.values() if child.pid is not None}

    def close(self) -> None:
        """End them."""
        for child, _ in self._children.values():
            child.close()
        self._children.clear()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Let imports of the block use them."""
        with pytest.MonkeyPatch.context() as patch:
            for user in (importing, stages):
                patch.setattr(user, "import_child", self.import_child)
            yield


def processor_count() -> int:
    """Return the number of processors of this process."""
    return len(os.sched_getaffinity(0))
