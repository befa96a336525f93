"""Targets: what kernels are compiled for, by which names, and what such machines can do.

- `target`: `Target`, a kind of code generator and its attributes.
- `parse`: reads what people write (``"host"``, ``"rtx 4090"``, a tag of TVM's, JSON) into a `Target`.
- `gpu`, `gpu_launch`, `dot_products`, `cores`: facts about GPUs and CPUs that LLVM and TVM do not tell without a compiler.
- `host`: this machine's device model, cores and CPU flags.
- `toolchain`, `linker`: the versions of TVM and of ``nvcc`` on this machine, and its linker; `trimmed`: a TVM without its compiler.

Nothing here imports TVM; `parse.detect_host_target` asks it in a child process.
"""
