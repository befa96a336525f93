"""Child process that takes models through tunefarm: checked, bound, imported, compiled untuned and run.

Handler `run`: ``path``, ``values`` (inputs that are bound, by name), ``feeds`` (a file; null to stop before the run), ``expected`` (a file), ``rtol``, ``atol``, ``library``
(where to write it), ``plain`` (no default schedules: built in half the time) -> null, or in what the outputs differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from benchmarks.conformance.compare import first_difference
from tvm import relax

from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.frontend.onnx.check_child import inspect_file
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.children.import_network import import_file
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

_MAX_NODES = 20_000
_MAX_TENSOR_BYTES = 1 << 30
# LLVM's optimisations take most of the time of a build, and the kernels are tiny.
_HOST = Target.from_json({**parse_target("host").to_json(), "opt-level": 0})


def run(params: dict[str, Any]) -> str | None:
    """Run one model.

    Raises:
        InvalidModelError: It is refused.
    """
    path = params["path"]
    binding = Binding.of(values=params["values"])
    inspect_file(path, binding, max_nodes=_MAX_NODES, max_tensor_bytes=_MAX_TENSOR_BYTES)
    loaded = load_relax(path, binding, _HOST)
    if any(0 in spec.shape for spec in loaded.outputs):
        import_file(path, binding, max_tensor_bytes=_MAX_TENSOR_BYTES)  # which refuses it
    if params["feeds"] is None:
        return None
    library = Path(params["library"])
    build_model(loaded.module, _HOST, library, default_schedules=not params["plain"])
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    outputs = machine["main"](*[tvm.runtime.tensor(value) for value in load_arrays(params["feeds"])])
    library.unlink()
    arrays = [outputs.numpy()] if isinstance(outputs, tvm.runtime.Tensor) else [y.numpy() for y in outputs]
    return first_difference(arrays, load_arrays(params["expected"]), params["rtol"], params["atol"])


HANDLERS: Handlers = {"run": run}
