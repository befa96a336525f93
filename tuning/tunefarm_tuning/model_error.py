"""The death of a child over a model, as an error of the model."""

from __future__ import annotations

from tunefarm_tuning.child import ChildFailed, ChildOutOfMemory, ChildTimedOut
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
