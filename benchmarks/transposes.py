"""Count the transposes that the graph passes leave in networks, with and without transpose propagation.

    python -m benchmarks.transposes FILE...

A file is an ONNX file of fixed shapes, or the name of one of `benchmarks.models.networks`. Optimise files with other tools first to see what these
achieve (ADR 0037).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import tvm
from benchmarks.models.networks import network_file
from tvm import relax

from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.frontend.onnx.model_file import read_model
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.frontend.importer import import_bound
from tunefarm_tuning.tvm.transform.passes import Layout, Level, PassContext, passes_for
from tunefarm_tuning.tvm.transform.transposes.cancel import cancel_transposes, transpose_axes
from tunefarm_tuning.tvm.transform.transposes.propagate_down import moved_elements
from tunefarm_tuning.workload.binding import Binding

_TARGET = Target.from_json({"kind": "llvm", "mcpu": "skylake-avx512"})
_PROPAGATION = ("PropagateTransposesDown", "PropagateTransposesUp")


def count(module: tvm.IRModule, layout: Layout, *, propagate: bool) -> tuple[int, int]:
    """Return how many transposes are left once the layout is chosen, and how many elements they move."""
    context = PassContext(target=_TARGET, layout=layout)
    steps: list[Any] = []
    for graph_pass in passes_for(context):
        if graph_pass.level >= Level.LOWER:
            break
        if propagate or graph_pass.name not in _PROPAGATION:
            steps.append(graph_pass.bound(context))
        elif graph_pass.name == _PROPAGATION[0]:
            steps.append(tvm.transform.module_pass(lambda mod, _: cancel_transposes(mod), opt_level=0))
    with tvm_target(_TARGET):
        laid_out = tvm.transform.Sequential(steps)(module)
    nodes: list[Any] = []
    relax.analysis.post_order_visit(laid_out["main"], nodes.append)
    return sum(transpose_axes(node) is not None for node in nodes), sum(moved_elements(laid_out).values())


def main() -> None:
    """Print a row for each file: transposes left, and thousands of elements moved, with and without propagation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", help="ONNX files, or names of networks")
    parser.add_argument(
        "--folder", type=Path, default=Path("/tmp/networks"), help="where networks are written"
    )
    arguments = parser.parse_args()
    print(
        "| File | with: transposes | elements (k) | without: transposes | elements (k) |\n|---|---|---|---|---|"
    )
    for name in arguments.files:
        path = network_file(name, arguments.folder)
        model = read_model(path)
        module = import_bound(bind_model(model, Binding())).module
        cells = []
        for propagate in (True, False):
            try:
                transposes, elements = count(module, Layout.BY_OPERATOR, propagate=propagate)
            except Exception:
                transposes, elements = count(module, Layout.AROUND_CONVOLUTIONS, propagate=propagate)
            cells += [str(transposes), f"{elements / 1000:.0f}"]
        print(f"| {path.stem} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
