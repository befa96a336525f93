"""Child process: import a model with TVM, and extract its tuning tasks.

Handlers:

- `import_network`: ``path``, ``binding``, ``max_tensor_bytes``, ``hybrid`` (whether ONNX Runtime may run what cannot be compiled),
  ``not_compiled`` (an error of the checks, or null), ``extract`` (bool) -> ``outputs`` (specs), for no CPU in particular; ``parts``, which
  ONNX Runtime runs; ``tasks`` for any CPU, if asked for.
- `import_more`: ``path``, ``bindings``, ``max_tensor_bytes`` -> ``inputs`` and ``outputs`` (specs) of each.
- `extract`: ``path``, ``bindings``, ``weights`` (one for each), ``parts``, ``target``, ``alternatives`` (bool), ``precision`` -> tuning
  tasks.
- `describe_workloads`: ``irs`` (computations, as text) -> key, operations and arguments of each.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import tvm
from tvm import relax, tirx

from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError, error_from_json
from tunefarm_tuning.frontend.onnx.bound_network import bound_network
from tunefarm_tuning.frontend.onnx.parts.plan import Survey, may_be_hybrid, plan_parts
from tunefarm_tuning.frontend.onnx.rules import item_bytes
from tunefarm_tuning.frontend.onnx.shape_trials import with_shapes
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.resources import with_deep_stack
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.frontend.survey import survey_model
from tunefarm_tuning.tvm.tasks.alternatives import alternative_tasks, find_alternatives
from tunefarm_tuning.tvm.tasks.extract import (
    as_kernel,
    kernel_args,
    kernel_flops,
    primfunc_workloads,
    tasks_of,
)
from tunefarm_tuning.tvm.transform.load_entries import LoadedEntries, load_entries
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.runtime_part import RuntimePart

_ANY_CPU = Target(kind="llvm")
_LEFT_TO_ONNX_RUNTIME = (
    *("unsupported-operator", "unsupported-dtype"),
    *("unequal-branches", "unknown-loop", "zero-size", "too-large"),  # control flow that is not resolved
)
"""The codes of what ONNX Runtime may be able to run."""


def import_network(params: dict[str, Any]) -> dict[str, Any]:
    """Import a model; the params are the arguments of `import_file`, with the binding as JSON."""
    return import_file(**{**params, "binding": Binding.from_json(params["binding"])})


def import_file(
    path: str,
    binding: Binding,
    *,
    max_tensor_bytes: int,
    hybrid: bool = False,
    not_compiled: dict[str, Any] | None = None,
    extract: bool = False,
) -> dict[str, Any]:
    """Import and prepare a model for a generic CPU, and return its outputs, and its tuning tasks if asked to `extract` them.

    Raises:
        InvalidModelError: unsupported-operator, zero-size, too-large.
    """
    parts: tuple[RuntimePart, ...] = ()
    try:
        if not_compiled is not None:
            raise error_from_json(not_compiled)
        loaded = _checked(path, binding, max_tensor_bytes)
    except InvalidModelError as error:
        if not hybrid or error.code not in _LEFT_TO_ONNX_RUNTIME:
            raise
        parts = with_deep_stack(partial(_planned, path, binding, error))
        loaded = _checked(path, binding, max_tensor_bytes, parts)
    return {
        "outputs": [spec.to_json() for spec in loaded.outputs],
        "parts": [part.to_json() for part in parts],
        "tasks": _tasks(loaded, _ANY_CPU, [1], alternatives=True) if extract else [],
    }


def _planned(path: str, binding: Binding, error: InvalidModelError) -> tuple[RuntimePart, ...]:
    """Plan which parts of a network that cannot be compiled whole ONNX Runtime runs.

    Raises:
        InvalidModelError: `error`, the reason why it cannot be compiled whole, if there is no such plan.
    """
    network = bound_network(path, binding)
    survey = survey_model(network) if may_be_hybrid(network.model) else Survey()
    if parts := plan_parts(network.model, survey):
        return parts
    if not survey.reasons:
        raise error
    raise InvalidModelError(
        "run the network in ONNX Runtime: tuning would make nothing faster, as what can be compiled has no convolution, "
        f"matrix product or recurrent layer; not compiled: {error.message}",
        code=error.code,
        **error.fields,
    )


def import_more(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Import and prepare a model in other shapes.

    Raises:
        InvalidModelError: As `import_network`; the message names the shapes.
    """
    described = []
    for binding in params["bindings"]:
        try:
            loaded = _checked(params["path"], Binding.from_json(binding), params["max_tensor_bytes"])
        except InvalidModelError as error:
            raise with_shapes(error, Binding.from_json(binding)) from error
        described.append(
            {
                "inputs": [spec.to_json() for spec in loaded.inputs],
                "outputs": [spec.to_json() for spec in loaded.outputs],
            }
        )
    return described


def _checked(
    path: str, binding: Binding, max_tensor_bytes: int, parts: tuple[RuntimePart, ...] = ()
) -> RelaxNetwork:
    loaded = with_deep_stack(lambda: load_relax(path, binding, _ANY_CPU, parts=parts))
    for spec in loaded.outputs:
        if 0 in spec.shape:
            raise InvalidModelError(
                f"an output of the model has the shape {list(spec.shape)}: there is nothing to compute",
                code="zero-size",
            )
    _refuse_huge_tensors(loaded.module, max_tensor_bytes)
    return loaded


def extract(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tuning tasks of a model for a target; of several shapes, the tasks of all."""
    target = Target.from_json(params["target"])
    bindings = [Binding.from_json(binding) for binding in params["bindings"]]
    parts = [RuntimePart.from_json(part) for part in params["parts"]]
    loaded = with_deep_stack(
        lambda: load_entries(params["path"], bindings, target, Precision(params["precision"]), parts)
    )
    return _tasks(loaded, target, params["weights"], alternatives=params["alternatives"])


def _tasks(
    loaded: RelaxNetwork | LoadedEntries, target: Target, weights: list[int], *, alternatives: bool
) -> list[dict[str, Any]]:
    kernels = primfunc_workloads(loaded.module, weights)
    tasks = tasks_of(kernels, target)
    if alternatives:
        keys = {task.workload.key for task in tasks}
        others = find_alternatives(loaded.module, target, loaded.storage.kernels, weights, kernels)
        tasks += alternative_tasks(others, target, besides=keys)
    return [task.to_json() for task in tasks]


def _refuse_huge_tensors(module: tvm.IRModule, max_bytes: int) -> None:
    for node in walk(module["main"].body):
        kind = node.ty if isinstance(node, relax.Expr) else None
        if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
            continue
        dims = kind.shape.values
        if all(isinstance(dim, tirx.IntImm) for dim in dims):
            size = math.prod(int(dim) for dim in dims) * item_bytes(str(kind.dtype.dtype))
            if size > max_bytes:
                raise InvalidModelError(
                    f"a tensor inside the model, of shape {[int(d) for d in dims]}, takes {size} bytes; at most "
                    f"{max_bytes} are taken",
                    code="too-large",
                    size_bytes=size,
                    limit_bytes=max_bytes,
                )


def describe_workloads(params: dict[str, Any]) -> list[list[Any]]:
    """Return key, operations and arguments of computations, ``irs``, as an extraction wrote them.

    Raises:
        InvalidInputError: invalid-ir.
    """
    return [with_deep_stack(partial(_described, ir)) for ir in params["irs"]]


def _described(ir: str) -> list[Any]:
    module = module_from_text(ir)
    if [name.name_hint for name in module.functions] != ["main"]:
        raise InvalidInputError("a computation is one function", code="invalid-ir")
    kernel = as_kernel("main", module["main"], 1)
    args = [spec.to_json() for spec in kernel_args(kernel.module)]
    return [kernel.workload_key, kernel_flops(kernel.module), args]


HANDLERS: Handlers = {
    "import_network": import_network,
    "import_more": import_more,
    "extract": extract,
    "describe_workloads": describe_workloads,
}
