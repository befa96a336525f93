"""Import a stranger's network in child processes with limits, so that any failure becomes an error."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.child import call_in_child
from tunefarm_tuning.process.errors import ChildClosed, ChildFailed, ChildOutOfMemory, ChildTimedOut
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.process.model_child import CHILD_ENVIRONMENT, ImportLimits
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TensorSpec

_CHECK_CHILD = "tunefarm_tuning.frontend.onnx.check_child"
_IMPORT_CHILD = "tunefarm_tuning.tvm.children.import_network"
_CRASHES = {
    "SIGFPE": "divides by zero when its constants are folded",
    "": "is damaged, or too deep for the compiler",
}


def import_model(
    path: Path | str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Any] | None = None,
    limits: ImportLimits | None = None,
    cancellation: Cancellation | None = None,
) -> Model:
    """Check an ONNX or TFLite file and describe it.

    The stages are: our rules and ONNX's checker; ONNX Runtime, for the reference results; TVM's importer and the graph
    pipeline. Each runs in a child process under `limits`. Nothing is written. A TFLite file is read as the equivalent
    ONNX model (docs/adr/0023-tflite-files-are-read-as-onnx.md).

    Args:
        path: The file, of any name.
        shapes: Shapes of inputs with dynamic dimensions, by input name: ``{"x": (1, 3, 224, 224)}``. Of a TFLite file,
            of any inputs that shall have other shapes than the file states.
        values: Values of inputs that decide the network, by input name: ``{"sr": 16000}``. Numbers, nested sequences of them,
            or arrays of up to 4,096 elements. Such an input becomes a constant, and is no input any more.
        limits: Limits of the import.
        cancellation: Ends the import from another thread.

    Raises:
        InvalidModelError: With code empty-file, not-protobuf, truncated-model, invalid-onnx, external-data,
            unsupported-operator, unknown-dimension, unknown-input, bad-shape, bad-value, zero-size, unsupported-dtype,
            invalid-tflite, too-large, import-crashed, import-timeout or import-memory.
        InvalidInputError: If there is no such file (code no-such-file), or a value is none (bad-value).
        ChildClosed: If `cancellation` was used.
    """
    path = Path(path)
    limits = limits or ImportLimits()
    sha256 = _hash(path, limits.file_bytes)
    bound = Binding.of(shapes, values)
    source = {"path": str(path.absolute()), "binding": bound.to_json()}
    common = {**source, "max_tensor_bytes": limits.tensor_bytes}
    stage = partial(_stage, limits=limits, cancellation=cancellation)
    inspected = stage("reading the model", _CHECK_CHILD, "inspect", {**common, "max_nodes": limits.nodes})
    inputs = tuple(TensorSpec.from_json(spec) for spec in inspected["inputs"])
    reference = stage("loading the model in ONNX Runtime", _CHECK_CHILD, "load_reference", source)
    imported = stage("importing the model into TVM", _IMPORT_CHILD, "import_network", common)
    outputs = tuple(TensorSpec.from_json(spec) for spec in imported["outputs"])
    _refuse_other_dtypes(outputs, reference["output_dtypes"])
    return Model(
        path=path,
        sha256=sha256,
        binding=Binding(
            shapes={spec.name: spec.shape for spec in inputs if spec.name in inspected["open_inputs"]},
            values=bound.values,
        ),
        inputs=inputs,
        outputs=outputs,
        operators=tuple((name, count) for name, count in inspected["operators"]),
        opset=inspected["opset"],
        num_params=inspected["num_params"],
    )


def _refuse_other_dtypes(outputs: Sequence[TensorSpec], expected: Sequence[str | None]) -> None:
    """Refuse a network that TVM is known to compute differently, before hours are spent on tuning it."""
    for spec, dtype in zip(outputs, expected, strict=True):
        if dtype is not None and spec.dtype != dtype:
            raise InvalidModelError(
                f"the output {clean(spec.name)!r} is {dtype} in ONNX, but TVM computes it as {spec.dtype}: leave this "
                "output out of the model",
                code="unsupported-operator",
                output=clean(spec.name),
            )


def _hash(path: Path, limit_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit_bytes:
                raise InvalidModelError(
                    f"the file has {size} bytes; the limit is {limit_bytes}",
                    code="too-large",
                    size_bytes=size,
                    limit_bytes=limit_bytes,
                )
            if size == 0:
                raise InvalidModelError("the file is empty", code="empty-file")
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInputError(
            f"the model file cannot be read: {error.strerror or error}", code="no-such-file"
        ) from error


def _stage(
    doing: str,
    module: str,
    method: str,
    params: Mapping[str, Any],
    *,
    limits: ImportLimits,
    cancellation: Cancellation | None,
) -> Any:
    try:
        return call_in_child(
            module,
            method,
            params,
            limits=ChildLimits(memory_bytes=limits.memory_bytes, cpu_sec=limits.cpu_sec, file_bytes=0),
            timeout_sec=limits.timeout_sec,
            env=CHILD_ENVIRONMENT,
            cancellation=cancellation,
        )
    except ChildClosed:
        raise
    except ChildOutOfMemory as error:
        raise InvalidModelError(
            f"{doing} took more than {limits.memory_bytes >> 20} MiB of memory; a small file can ask for huge "
            "constants (ConstantOfShape, Expand, Tile): fold or shrink them, or raise the limit",
            code="import-memory",
            stage=doing,
            limit_bytes=limits.memory_bytes,
        ) from error
    except ChildTimedOut as error:
        raise InvalidModelError(
            f"{doing} took longer than {limits.timeout_sec:g} s (or {limits.cpu_sec} s of CPU time); simplify the "
            "model, or raise the limit",
            code="import-timeout",
            stage=doing,
            limit_sec=limits.timeout_sec,
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
