"""Calls into child processes that read a stranger's model, under the limits of an import."""

from __future__ import annotations

from typing import Any

from tunefarm_tuning.child.errors import ChildClosed, ChildFailed
from tunefarm_tuning.child.limits import ChildLimits
from tunefarm_tuning.child.process import call_in_child
from tunefarm_tuning.importing import CHILD_ENVIRONMENT, ImportLimits
from tunefarm_tuning.model_error import model_error


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
