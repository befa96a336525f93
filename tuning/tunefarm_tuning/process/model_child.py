"""Calls into child processes that read a stranger's model, under the limits of an import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.process.child import call_in_child
from tunefarm_tuning.process.errors import (
    ChildClosed,
    ChildFailed,
    ChildOutOfDisk,
    ChildOutOfMemory,
    ChildTimedOut,
)
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.process.running import OF_NETWORKS
from tunefarm_tuning.process.sandbox import Access


def call_model_child(
    stage: str,
    doing: str,
    module: str,
    handler: str,
    params: dict[str, Any],
    limits: ImportLimits,
    access: Access,
    *,
    cancellation: Cancellation | None = None,
) -> Any:
    """Call a handler of a child module, and return its answer.

    Args:
        stage: Begins an error's code, as in `model_error`.
        doing: The child's work, for a message.
        module: The child's module.
        handler: The handler's name there.
        params: The handler's argument.
        limits: The child's memory and time.
        access: What it may touch.
        cancellation: Ends the child from another thread.

    Raises:
        InvalidModelError: What the handler raised, or what `model_error` makes of a child that gave no answer.
    """
    try:
        return call_in_child(
            module,
            handler,
            params,
            limits=ChildLimits(memory_bytes=limits.memory_bytes, cpu_sec=limits.cpu_sec),
            access=access,
            timeout_sec=limits.timeout_sec,
            env=CHILD_ENVIRONMENT,
            cancellation=cancellation,
        )
    except ChildClosed:
        raise
    except ChildFailed as error:
        raise model_error(stage, doing, error) from error


def model_error(stage: str, doing: str, error: ChildFailed) -> InvalidModelError:
    """Return the error of a model whose child gave no answer; `stage` begins its code: ``"compile"`` makes compile-timeout."""
    if isinstance(error, ChildTimedOut):
        kind, why = "timeout", "took too long"
    elif isinstance(error, ChildOutOfMemory):
        kind, why = "memory", "took too much memory"
    elif isinstance(error, ChildOutOfDisk):
        kind, why = "disk", "wrote too much"
    else:
        kind, why = "crashed", "crashed"
    return InvalidModelError(
        f"{doing} {why}: {error.message}",
        code=f"{stage}-{kind}",
        stage=stage,
        detail=error.fields.get("detail", ""),
    )


@contextmanager
def compiling(doing: str) -> Iterator[None]:
    """Turn a child's failure inside the block into an error of the model; cancellations pass."""
    try:
        yield
    except ChildClosed:
        raise
    except ChildFailed as error:
        raise model_error("compile", doing, error) from error


CHILD_ENVIRONMENT = {**OF_NETWORKS, "TVM_NUM_THREADS": "1"}


_PROTOBUF_LIMIT_BYTES = (2 << 30) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLimits:
    """Limits of the import of a model.

    Attributes:
        file_bytes: Largest file, in bytes; protobuf's own limit is 2 GiB.
        memory_bytes: Address space of each child process.
        timeout_sec: Wall-clock of each of the three stages.
        cpu_sec: CPU seconds of each child process.
        nodes: Maximum number of nodes, including inner graphs.
        tensor_bytes: Largest input, output or intermediate tensor, in bytes.
        artifact_bytes: Largest artifact of several shapes, estimated before any work: linkers end at 2 GiB.
    """

    file_bytes: int = _PROTOBUF_LIMIT_BYTES
    memory_bytes: int = 8 << 30
    timeout_sec: float = 300.0
    cpu_sec: int = 600
    nodes: int = 20_000
    tensor_bytes: int = 4 << 30
    artifact_bytes: int = 2 << 30
