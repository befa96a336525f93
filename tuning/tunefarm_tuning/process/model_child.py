"""Calls into child processes that read a stranger's model, under the limits of an import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.process.child import call_in_child
from tunefarm_tuning.process.errors import ChildClosed, ChildFailed, ChildOutOfMemory, ChildTimedOut
from tunefarm_tuning.process.limits import ChildLimits


def call_model_child(
    stage: str, what: str, module: str, handler: str, params: dict[str, Any], limits: ImportLimits
) -> Any:
    """Call a handler of a child module, and return its answer.

    Args:
        stage: What the code of an error begins with, as of `model_error`.
        what: What the child does, for a message.
        module: The child's.
        handler: Its name there.
        params: What it takes.
        limits: Of its memory and time.

    Raises:
        InvalidModelError: What the handler raised, or what `model_error` makes of a child that gave no answer.
    """
    try:
        return call_in_child(
            module,
            handler,
            params,
            limits=ChildLimits(memory_bytes=limits.memory_bytes, cpu_sec=limits.cpu_sec),
            timeout_sec=limits.timeout_sec,
            env=CHILD_ENVIRONMENT,
        )
    except ChildClosed:
        raise
    except ChildFailed as error:
        raise model_error(stage, what, error) from error


def model_error(stage: str, doing: str, error: ChildFailed) -> InvalidModelError:
    """Return the error to raise.

    Args:
        stage: Begins the code: ``"compile"`` makes compile-timeout, compile-memory, compile-crashed.
        doing: What was under way, for the message.
        error: What the call raised.
    """
    if isinstance(error, ChildTimedOut):
        kind, why = "timeout", "took too long"
    elif isinstance(error, ChildOutOfMemory):
        kind, why = "memory", "took too much memory"
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
    """Turn a child's death inside the block into an error of the model's; a cancel stays one."""
    try:
        yield
    except ChildClosed:
        raise
    except ChildFailed as error:
        raise model_error("compile", doing, error) from error


# One thread for libraries that would start one per core: they do next to nothing here, and each costs address space.
CHILD_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}


_PROTOBUF_LIMIT_BYTES = (2 << 30) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLimits:
    """What a model may cost before it is accepted.

    Attributes:
        file_bytes: Largest file; protobuf itself stops below 2 GiB.
        memory_bytes: Address space of each child process.
        timeout_sec: Wall-clock of each of the three stages.
        cpu_sec: CPU seconds of each stage.
        nodes: Most nodes, inner graphs included.
        tensor_bytes: Largest tensor that goes in, comes out, or is passed between kernels.
    """

    file_bytes: int = _PROTOBUF_LIMIT_BYTES
    memory_bytes: int = 8 << 30
    timeout_sec: float = 300.0
    cpu_sec: int = 600
    nodes: int = 20_000
    tensor_bytes: int = 4 << 30
