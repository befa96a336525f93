"""The stages of an import: calls into child processes, whose failures become errors of the model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.process.child import ChildProcess
from tunefarm_tuning.process.errors import ChildClosed, ChildFailed, ChildOutOfMemory, ChildTimedOut
from tunefarm_tuning.process.limits import WORKLOADS_BYTES, ChildLimits
from tunefarm_tuning.process.model_child import CHILD_ENVIRONMENT, ImportLimits
from tunefarm_tuning.process.sandbox import Access

_CRASHES = {
    "SIGFPE": "divides by zero when its constants are folded",
    "": "is damaged, or too deep for the compiler",
}


@contextlib.contextmanager
def import_child(
    module: str, path: Path, limits: ImportLimits, cancellation: Cancellation | None, times: int = 1
) -> Iterator[ChildProcess]:
    """Yield a child that may read the file, under the limits; its processor time may be `times` as long as they say."""
    child = ChildProcess(
        module,
        limits=ChildLimits(
            memory_bytes=limits.memory_bytes,
            cpu_sec=times * limits.cpu_sec,
            file_bytes=0,
            reply_bytes=WORKLOADS_BYTES,
        ),
        access=Access(reads=(path.absolute(),)),
        env=CHILD_ENVIRONMENT,
    )
    with child, (cancellation or Cancellation()).attach(child):
        yield child


def call_alone(
    doing: str,
    module: str,
    method: str,
    params: Mapping[str, Any],
    *,
    limits: ImportLimits,
    cancellation: Cancellation | None,
    times: int = 1,
) -> Any:
    """Call a child of its own under the limits; it may take `times` as long as they say.

    Args:
        doing: The child's work, for a message.
        module: The child's module.
        method: The handler's name there.
        params: The handler's argument, with the file's ``path``.
        limits: Of the import.
        cancellation: Ends the child from another thread.
        times: How much longer than others it may take.

    Raises:
        InvalidModelError: As `call`.
        ChildClosed: If `cancellation` was used.
    """
    with import_child(module, Path(params["path"]), limits, cancellation, times) as child:
        return call(child, doing, method, params, limits=limits, times=times)


def call(
    child: ChildProcess,
    doing: str,
    method: str,
    params: Mapping[str, Any],
    *,
    limits: ImportLimits,
    times: int = 1,
) -> Any:
    """Call a child; what becomes of it is an error of the model.

    Raises:
        InvalidModelError: What the handler raised; import-memory, import-timeout or import-crashed if the child gave no answer.
        ChildClosed: If the child was closed from another thread.
    """
    try:
        return child.call(method, params, timeout_sec=times * limits.timeout_sec)
    except ChildClosed:
        raise
    except ChildOutOfMemory as error:
        raise out_of_memory(doing, limits) from error
    except ChildTimedOut as error:
        raise InvalidModelError(
            f"{doing} took longer than {times * limits.timeout_sec:g} s (or {times * limits.cpu_sec} s of CPU time): try again when "
            "the machine is less busy, simplify the model, or raise the limit (`ImportLimits.timeout_sec`; of a farm, its setting "
            "TUNEFARM_IMPORT_TIMEOUT_SEC)",
            code="import-timeout",
            stage=doing,
            limit_sec=times * limits.timeout_sec,
        ) from error
    except ChildFailed as error:
        # The child's last output is only in the cause, because it names files of this machine.
        cause = getattr(error, "signal_name", None) or "an early exit"
        raise InvalidModelError(
            f"{doing} crashed ({cause}): the model {_CRASHES.get(cause, _CRASHES[''])}; check it with "
            "onnx.checker.check_model(model, full_check=True)",
            code="import-crashed",
            stage=doing,
            cause=cause,
        ) from error


def out_of_memory(doing: str, limits: ImportLimits) -> InvalidModelError:
    """Return the error of a model that takes more memory than an import may."""
    return InvalidModelError(
        f"{doing} took more than {limits.memory_bytes >> 20} MiB of memory; a small file can ask for huge "
        "tensors (ConstantOfShape, Expand, Tile): fold or shrink them, bind smaller sizes, or raise the limit (`ImportLimits.memory_bytes`; of "
        "a farm, its setting TUNEFARM_IMPORT_MEMORY_BYTES)",
        code="import-memory",
        stage=doing,
        limit_bytes=limits.memory_bytes,
    )
