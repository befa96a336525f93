"""Child process that runs an artifact, or the library of an untuned network, on the GPU and times it.

And a kernel that is wrong on purpose, built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefarm_tuning.core.array_file import load_arrays, save_arrays


def artifact(params: dict[str, Any]) -> dict[str, Any]:
    """Run an artifact: ``{"path", "inputs", "outputs" (to be written), "samples"}``."""
    from tunefarm_tuning.artifact.loader import load

    model = load(params["path"])
    arrays = load_arrays(params["inputs"])
    names = [spec["name"] for spec in model.inputs]
    save_arrays(Path(params["outputs"]), list(model(*arrays).values()))
    feeds = dict(zip(names, arrays, strict=True))
    return {"samples_sec": model.time(repeat=params["samples"], inputs=feeds)}


def library(params: dict[str, Any]) -> dict[str, Any]:
    """Run a library: as `artifact`, and ``kind``: TVM's kind of device."""
    import tvm
    from tvm import relax

    from tunefarm_tuning.artifact.arrays import flatten

    device = tvm.device(params["kind"], 0)
    machine = relax.VirtualMachine(tvm.runtime.load_module(params["path"]), device)
    tensors = [tvm.runtime.tensor(array, device) for array in load_arrays(params["inputs"])]
    outputs = flatten(machine["main"](*tensors))
    save_arrays(Path(params["outputs"]), [tensor.numpy() for tensor in outputs])
    once = machine.time_evaluator("main", device, number=3, repeat=1)(*tensors).results[0]
    number = max(1, int(0.05 / max(once, 1e-6)))
    timed = machine.time_evaluator("main", device, number=number, repeat=params["samples"])(*tensors)
    return {"samples_sec": [float(sec) for sec in timed.results]}


def build_bad(params: dict[str, Any]) -> None:
    """Build a kernel that reads far outside of its argument: ``{"path", "target" (a name)}``."""
    from tvm import te, tirx

    from tunefarm_tuning.target.parse import parse_target
    from tunefarm_tuning.tvm.codegen.graph_build import build_kernel
    from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel

    source = te.placeholder((256,), name="given")
    far = tirx.const(1 << 38, "int64")
    gathered = te.compute((256,), lambda i: source[i.astype("int64") * far + far], name="made")
    kernel = PackedKernel(func=te.create_prim_func([source, gathered]))
    build_kernel(kernel, parse_target(params["target"]), Path(params["path"]))


HANDLERS = {"artifact": artifact, "library": library, "build_bad": build_bad}
