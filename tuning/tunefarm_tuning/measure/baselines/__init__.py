"""Other runtimes that a network is timed in, beside its artifact, on a CPU.

`runtimes` lists them. `openvino` and `litert` open a network in one runtime each, by the interface of `runtime`; they are imported in
child processes (`child`) alone. `baseline` is what a compile calls. How to add one: docs/extending.md.
"""
