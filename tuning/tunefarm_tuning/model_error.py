"""The death of a child over a model, as an error of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tunefarm_tuning.child import ChildClosed, ChildFailed, ChildOutOfMemory, ChildTimedOut
from tunefarm_tuning.errors import InvalidModelError


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
