"""TVM's IR and targets: walking, rewriting, intrinsics.

- TVM in our processes: `tvm_import`, `target` (`dump_target_tags` writes the list of its tags), `resources`, `serialization`.
- IR: `tir` of kernels, `relax_graph` of networks, `reshapes`.
- Kernels on their way to a CPU's code: `index_bounds` as a graph pass; then, by `lowering`, `narrow_buffers`, `stack_buffers`, `vector_loads`,
  `remainder_loops`, `vector_math`, `bfloat16_instructions`, `other_cpus`.
- On a GPU: `tensor_intrinsics`, and `launches`, which reads what a kernel became.
"""
