"""A kernel's source: what a config makes of its workload, as text for people.

::

    source = kernel_source(task, record)
    print(source.text("schedule"))   # TensorIR, as TVMScript
    print(source.text("asm"))        # or "llvm"; "cuda" for a GPU
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process import ChildLimits, ChildProcess
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.task import TuningTask

SOURCE_KINDS = ("schedule", "llvm", "asm", "cuda")
"""All that there are; a kernel for a CPU has no ``cuda``, one for a GPU neither ``llvm`` nor ``asm``."""

LIMIT_BYTES = 4 << 20
_TIMEOUT_SEC = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """One of a kernel's texts.

    Attributes:
        kind: One of `SOURCE_KINDS`.
        text: Its lines. No control characters are in it, whatever names the model has.
        size_bytes: Of all of it in UTF-8; more than `text` has where that was cut.
    """

    kind: str
    text: str
    size_bytes: int

    @property
    def is_cut(self) -> bool:
        """Whether the end is missing."""
        return len(self.text.encode()) < self.size_bytes

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "size_bytes": self.size_bytes}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(kind=str(data["kind"]), text=str(data["text"]), size_bytes=int(data["size_bytes"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """What a config makes of its workload.

    Attributes:
        toolchain: The versions that made it.
        texts: ``schedule`` first.
    """

    toolchain: str
    texts: tuple[SourceText, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(text.kind for text in self.texts)

    def find(self, kind: str) -> SourceText:
        """Return one of the texts.

        Raises:
            NotFoundError: ``no-such-source`` if the kernel has none of this kind.
        """
        for text in self.texts:
            if text.kind == kind:
                return text
        raise NotFoundError(
            f"the kernel has no source of kind {clean(kind)}: it has {', '.join(self.kinds)}",
            code="no-such-source",
            kinds=list(self.kinds),
        )

    def text(self, kind: str) -> str:
        """Return the lines of one of the texts (see `find`)."""
        return self.find(kind).text

    def to_json(self) -> dict[str, Any]:
        return {"toolchain": self.toolchain, "texts": [text.to_json() for text in self.texts]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            toolchain=str(data["toolchain"]),
            texts=tuple(SourceText.from_json(text) for text in data["texts"]),
        )


def kernel_source(
    task: TuningTask,
    config: Config | TuningRecord,
    *,
    limit_bytes: int = LIMIT_BYTES,
    limits: ChildLimits | None = None,
    cancellation: Cancellation | None = None,
) -> KernelSource:
    """Schedule and build a kernel once more, for its texts: TensorIR as TVMScript, and the generated code.

    The code is what a candidate was measured as: of a CPU LLVM's IR and its assembly, of a GPU CUDA C (neither a GPU nor
    CUDA's compiler is needed). It takes some seconds, most of them to start the process that does it.

    Args:
        task: The kernel.
        config: How it is scheduled: a record of it, or a config of its space (where TVM takes a compute location that is
            not legal elsewhere, this does so too).
        limit_bytes: A text that is longer loses its last lines.
        limits: Of the child process.
        cancellation: Ends it from another thread.

    Raises:
        InvalidInputError: ``other-workload``, ``other-target`` or ``other-toolchain`` if the record is of another;
            ``space-changed`` or ``does-not-apply`` if the config does not fit the workload.
        ChildFailed: If TVM died over it.
    """
    space_key: str | None = None
    if isinstance(config, TuningRecord):
        _check(task, config)
        space_key = config.space_key
        config = config.config
    params = {
        "ir": task.workload.ir,
        "target": task.target.to_json(),
        "config": config.to_json(),
        "space_key": space_key,
        "limit_bytes": limit_bytes,
    }
    module = "tunefarm_tuning.tvm.children.source"
    cancellation = cancellation or Cancellation()
    with ChildProcess(module, limits=limits or ChildLimits()) as child, cancellation.attach(child):
        texts = child.call("source", params, timeout_sec=_TIMEOUT_SEC)
    return KernelSource(toolchain=toolchain_key(), texts=tuple(SourceText.from_json(text) for text in texts))


def _check(task: TuningTask, record: TuningRecord) -> None:
    for field, of_record, wanted in (
        ("workload", record.workload_key, task.workload.key),
        ("target", record.target_key, task.target.key),
        ("toolchain", record.toolchain, toolchain_key()),
    ):
        if of_record != wanted:
            raise InvalidInputError(
                f"the record is of {field} {clean(of_record)}; this is {clean(wanted)}", code=f"other-{field}"
            )
