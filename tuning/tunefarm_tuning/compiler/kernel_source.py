"""`kernel_source`: a kernel's schedule and generated code, as text for people.

::

    source = kernel_source(task, record)
    print(source.text("schedule"))   # TensorIR, as TVMScript
    print(source.text("asm"))        # or "llvm"; "cuda" for a GPU
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process import ChildLimits, ChildProcess
from tunefarm_tuning.process.limits import WORKLOADS_BYTES
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.task import TuningTask

SOURCE_KINDS = ("schedule", "llvm", "asm", "cuda")
"""All kinds of text. A kernel for a CPU has no ``cuda``; one for a GPU has neither ``llvm`` nor ``asm``."""

LIMIT_BYTES = 4 << 20
_TIMEOUT_SEC = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText(JsonFields):
    """One of a kernel's texts.

    Attributes:
        kind: One of `SOURCE_KINDS`.
        text: The text, without the control characters that names in the model may have.
        size_bytes: Size of the complete text in UTF-8; more than that of `text` if it was cut.
    """

    kind: str
    text: str
    size_bytes: int

    @property
    def is_cut(self) -> bool:
        """Whether the end of the text is missing."""
        return len(self.text.encode()) < self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource(JsonFields):
    """The texts of a kernel.

    Attributes:
        toolchain: The versions that generated the code, as `toolchain_key` writes them.
        texts: One text for each kind, ``schedule`` first.
    """

    toolchain: str
    texts: tuple[SourceText, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the texts."""
        return tuple(text.kind for text in self.texts)

    def find(self, kind: str) -> SourceText:
        """Return the text of a kind.

        Raises:
            NotFoundError: If the kernel has no text of this kind (no-such-source).
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
        """Return the lines of the text of a kind (see `find`)."""
        return self.find(kind).text


def kernel_source(
    task: TuningTask,
    config: Config | TuningRecord,
    *,
    limit_bytes: int = LIMIT_BYTES,
    limits: ChildLimits | None = None,
    cancellation: Cancellation | None = None,
) -> KernelSource:
    """Schedule and build a kernel again to get its texts: TensorIR as TVMScript, and the generated code.

    The code is the code that was measured: LLVM IR and assembly for a CPU, CUDA C for a GPU (which needs neither a GPU nor CUDA's
    compiler). It takes a few seconds, most of them for starting a child process.

    Args:
        task: The kernel.
        config: How the kernel is scheduled: a record of it, or a config of its space. An illegal compute location becomes a legal
            one, as in a trial.
        limit_bytes: Longer texts lose their last lines.
        limits: Limits of the child process.
        cancellation: Ends the call from another thread.

    Returns:
        The texts, ``schedule`` first.

    Raises:
        InvalidInputError: If the record is of another workload, target or toolchain (other-workload, other-target,
            other-toolchain); if the config does not fit the workload (space-changed, does-not-apply).
        ChildFailed: If TVM crashed or exceeded its time.
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
    limits = replace(limits or ChildLimits(), reply_bytes=WORKLOADS_BYTES)
    with ChildProcess(module, limits=limits) as child, cancellation.attach(child):
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
                f"the record's {field} is {clean(of_record)}, but {clean(wanted)} is required",
                code=f"other-{field}",
            )
