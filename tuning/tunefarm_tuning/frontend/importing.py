"""Import a stranger's network in child processes with limits, so that any failure becomes an error."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError, InvariantError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.described_model import described_model
from tunefarm_tuning.frontend.stages import call, call_alone, import_child, out_of_memory
from tunefarm_tuning.process.child import ChildProcess
from tunefarm_tuning.process.errors import stated_error
from tunefarm_tuning.process.model_child import ImportLimits
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.binding_text import option_line
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.runtime_part import OpenSpec
from tunefarm_tuning.workload.shapes import GivenShape, fixed_shapes, open_texts
from tunefarm_tuning.workload.task import TuningTask

_CHECK_CHILD = "tunefarm_tuning.frontend.onnx.check_child"
_IMPORT_CHILD = "tunefarm_tuning.tvm.children.import_network"
_PROPOSED_FOR = frozenset(
    {
        "unknown-dimension",
        "unknown-input",
        "bad-shape",
        "cannot-run",
        "invalid-onnx",
        "unequal-branches",
        "unknown-loop",
    }
)
"""Errors that other shapes or values may avoid, if the file leaves any open or was given some that do not fit."""
_UNKNOWN_TO_ONNX_RUNTIME = frozenset({"invalid-onnx", "unsupported-operator"})
"""Errors of ONNX Runtime for a network with an operator that it does not know."""
_RUNNING = "loading the model in ONNX Runtime and running it once"
_AT_ONCE_BYTES = 256 << 20
"""ONNX Runtime and TVM read files up to this size at once; larger ones in turn, for want of memory."""
_FLOAT_BYTES = 4
_OPERATOR_CODE_BYTES = 16 << 10
"""Machine code of an operator's kernel, roughly: for an estimate."""


def import_model(
    path: Path | str,
    *,
    shapes: Mapping[str, GivenShape] | None = None,
    values: Mapping[str, Any] | None = None,
    hybrid: bool = True,
    limits: ImportLimits | None = None,
    cancellation: Cancellation | None = None,
) -> Model:
    """Check an ONNX or TFLite file and describe it.

    The stages are: our rules and ONNX's checker; ONNX Runtime, for the reference results; TVM's importer and the graph
    pipeline. The first two run in one child process, the last in another, each under `limits`. Nothing is written. A TFLite file is read as the equivalent
    ONNX model (docs/adr/0023-tflite-files-are-read-as-onnx.md).

    Args:
        path: The file, of any name.
        shapes: Shapes of inputs with dynamic dimensions, by input name: ``{"x": (1, 3, 224, 224)}``; or texts with several sizes,
            ``{"x": "1,3,48,160|320|640"}`` (`tunefarm_text.shape_text`): the model then has a specialisation for each combination.
            Of a TFLite file, of any inputs that shall have other shapes than the file states.
        values: Values of inputs that decide the network, by input name: ``{"sr": 16000}``. Numbers, nested sequences of them,
            or arrays of up to 4,096 elements. Such an input becomes a constant, and is no input any more.
        hybrid: Whether ONNX Runtime may run the parts of the network that cannot be compiled, inside the artifact
            (`Model.parts`); if not, such a network is refused. One of several shapes is always compiled whole.
        limits: Limits of the import.
        cancellation: Ends the import from another thread.

    Raises:
        InvalidModelError: With code empty-file, not-protobuf, truncated-model, invalid-onnx, external-data,
            unsupported-operator, unknown-dimension, unknown-input, bad-shape, bad-value, zero-size, unsupported-dtype,
            invalid-tflite, too-large (also an artifact of several shapes), unknown-loop, too-many-steps, unequal-branches,
            index-out-of-range, bad-scale, cannot-run, import-crashed, import-timeout or import-memory.
        InvalidInputError: If there is no such file (code no-such-file), a value is none (bad-value), a shape's text cannot be
            read (bad-shape), or there are more than 64 combinations of sizes (too-many-shapes).
        ChildClosed: If `cancellation` was used.
    """
    model, _ = import_with_tasks(
        path,
        shapes=shapes,
        values=values,
        hybrid=hybrid,
        limits=limits,
        cancellation=cancellation,
        extract=False,
    )
    return model


def import_with_tasks(
    path: Path | str,
    *,
    shapes: Mapping[str, GivenShape] | None = None,
    values: Mapping[str, Any] | None = None,
    hybrid: bool = True,
    limits: ImportLimits | None = None,
    cancellation: Cancellation | None = None,
    extract: bool = True,
) -> tuple[Model, tuple[TuningTask, ...]]:
    """Do what `import_model` does, and return the tuning tasks for any CPU as well: the same as `extract_tasks`' for ``llvm``.

    So a network is read and prepared once less. There are no tasks of a model of several shapes, nor without `extract`. Arguments and
    errors are those of `import_model`.
    """
    path = Path(path)
    limits = limits or ImportLimits()
    sha256 = _hash(path, limits.file_bytes)
    choices = open_texts(shapes or {})
    hybrid = hybrid and not choices
    bound = Binding.of({} if choices else fixed_shapes(shapes or {}), values)
    network = {
        "path": str(path.absolute()),
        "binding": bound.to_json(),
        "max_tensor_bytes": limits.tensor_bytes,
    }
    stage = partial(call_alone, limits=limits, cancellation=cancellation)
    is_open, not_compiled = True, None
    is_small = path.stat().st_size <= _AT_ONCE_BYTES
    with import_child(_CHECK_CHILD, path, limits, cancellation) as checker:
        try:
            inspected = call(
                checker,
                "reading the model",
                "inspect",
                {**network, "choices": choices, "max_nodes": limits.nodes, "hybrid": hybrid},
                limits=limits,
            )
            if not is_small:
                checker.kill()  # what is left of the file would take memory from ONNX Runtime
            is_open, not_compiled = bool(inspected["open_inputs"]), inspected["not_compiled"]
            combined = inspected["combinations"]
            if combined:
                _refuse_huge_artifact(path, inspected, limits)
                bound = replace(bound, shapes=combined[0]["shapes"])
                network = {**network, "binding": bound.to_json()}
            more = [Binding.of(item["shapes"], values).to_json() for item in combined[1:]]
            ran, imported = _both(
                partial(_run_in_onnx_runtime, {**network, "more": more}, not_compiled, checker, limits),
                partial(
                    call_alone,
                    "importing the model into TVM",
                    _IMPORT_CHILD,
                    "import_network",
                    {
                        **network,
                        "hybrid": hybrid,
                        "not_compiled": not_compiled,
                        "extract": extract and not combined,
                    },
                    limits=limits,
                ),
                cancellation,
                at_once=is_small and len(os.sched_getaffinity(0)) > 1,
            )
        except InvalidModelError as error:
            raise (
                _with_proposal(error, network, stage) if is_open and error.code in _PROPOSED_FOR else error
            ) from None
    _refuse_other_dtypes(map(OpenSpec.from_json, imported["outputs"]), ran["output_dtypes"])
    if not ran["fits"]:
        raise out_of_memory(_RUNNING, limits)
    described: list[Mapping[str, Any]] = [{"inputs": inspected["inputs"], "outputs": imported["outputs"]}]
    if more:
        described += stage(
            f"importing the model into TVM in {len(more)} more shapes",
            _IMPORT_CHILD,
            "import_more",
            {**network, "bindings": more},
            times=len(more),
        )
    model = described_model(path, sha256, bound.values, inspected, imported, described)
    return model, tuple(TuningTask.from_json(task) for task in imported["tasks"])


def _both(
    first: Callable[[], Any], second: Callable[..., Any], cancellation: Cancellation | None, *, at_once: bool
) -> tuple[Any, Any]:
    """Return what two stages give. If both begin at once, an error of the first one ends the second, and is raised whatever that does."""
    if not at_once:
        return first(), second(cancellation=cancellation)
    ended = Cancellation()
    with (
        ThreadPoolExecutor(1, "tunefarm-import") as executor,
        (cancellation or Cancellation()).attach(ended),
    ):
        begun = executor.submit(contextvars.copy_context().run, partial(second, cancellation=ended))
        try:
            return first(), begun.result()
        except BaseException:
            ended.cancel()
            raise


def _refuse_huge_artifact(path: Path, inspected: Mapping[str, Any], limits: ImportLimits) -> None:
    """Refuse shapes whose code and weights would not fit into one library."""
    count = len(inspected["combinations"])
    operators = sum(calls for _, calls in inspected["operators"])
    weights_bytes = max(path.stat().st_size, _FLOAT_BYTES * inspected["num_params"])
    size_bytes = weights_bytes + count * operators * _OPERATOR_CODE_BYTES
    if size_bytes > limits.artifact_bytes:
        raise InvalidModelError(
            f"the artifact for {count} sets of shapes would take about {size_bytes >> 20} MiB; the limit is "
            f"{limits.artifact_bytes >> 20} MiB: give fewer shapes, or make several artifacts",
            code="too-large",
            size_bytes=size_bytes,
            limit_bytes=limits.artifact_bytes,
        )


def _run_in_onnx_runtime(
    network: Mapping[str, Any],
    not_compiled: Mapping[str, Any] | None,
    checker: ChildProcess,
    limits: ImportLimits,
) -> Any:
    """Have ONNX Runtime load and run the network; if it cannot run what cannot be compiled either, say why that is."""
    try:
        ran = call(checker, _RUNNING, "run_in_onnx_runtime", network, limits=limits)
        checker.close()  # for its memory
        return ran
    except InvalidModelError as error:
        if not_compiled is None or error.code not in _UNKNOWN_TO_ONNX_RUNTIME:
            raise
        reason = stated_error(not_compiled, may_blame_device=False)
        raise type(reason)(
            f"{reason.message}; ONNX Runtime, which might run it instead, does not: {error.message}",
            code=reason.code,
            **reason.fields,
        ) from error


def _with_proposal(
    error: InvalidModelError, network: Mapping[str, Any], stage: Callable[..., Any]
) -> InvalidModelError:
    """Return an error of what a network's inputs are bound to with options to paste: a binding with which it runs."""
    proposal: dict[str, Any] | None = None
    # A child that proposes may die of what it tries.
    with contextlib.suppress(InvalidModelError, InvariantError):
        proposal = stage("finding shapes with which the model runs", _CHECK_CHILD, "propose_binding", network)
    fields = dict(error.fields)
    example = fields.pop("example", "")
    options = "" if proposal is None else option_line(Binding.from_json(proposal["binding"]))
    if proposal is None or not (proposal["runs"] or (options and example)):
        advice = f", for example: {example}" if example else ""
        return InvalidModelError(error.message + advice, code=error.code, **fields)
    if not options:
        advice = "; it runs without shapes and values"
    else:
        advice = f"{'; it runs, for example, with' if proposal['runs'] else ', for example'}: {options}"
    return InvalidModelError(
        error.message + advice, code=error.code, **fields, proposal=proposal["binding"], options=options
    )


def _refuse_other_dtypes(outputs: Iterable[OpenSpec], expected: Sequence[str | None]) -> None:
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
