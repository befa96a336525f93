from __future__ import annotations

from tvm import relax, te
from tvm.script import relax as script

from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.tasks.neighbours import neighbours


def test_kernels_that_read_each_others_results_are_neighbours() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", script.Tensor((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_te(lambda a: _scaled(a, 2.0), x, primfunc_name_hint="first")
            second = builder.emit_te(lambda a: _scaled(a, 3.0), first, primfunc_name_hint="second")
            pair = builder.emit(relax.Tuple([first, second]))
            part = builder.emit(relax.TupleGetItem(pair, 1))
            third = builder.emit_te(lambda a: _scaled(a, 5.0), part, primfunc_name_hint="third")
            out = builder.emit_output(third)
        builder.emit_func_output(out)
    kernels = primfunc_workloads(builder.get())
    key = {kernel.name: kernel.workload_key for kernel in kernels}
    beside = neighbours(builder.get(), kernels)
    assert beside[key["first"]] == sorted([f"before {key['second']}", f"before {key['third']}"])
    assert f"after {key['first']}" in beside[key["second"]]
    assert f"before {key['third']}" in beside[key["second"]]
    assert f"after {key['second']}" in beside[key["third"]]


def _scaled(tensor, factor):
    return te.compute(tensor.shape, lambda i, j: tensor[i, j] * factor)
