"""The rules of default schedules for CPUs; `default_schedules.schedule` lists them in the order in which they are tried.

- `dot_product`: kernels around a dot product instruction, of int8 or bfloat16 (`dot_instructions`), in tiles (`dot_tiles`).
- `groups`: a preparation that splits the channels of grouped convolutions.
- `row_reductions`: softmax, normalisations, and single reductions along the last axis.
- `tiled_reductions`: convolutions, matrix products, pools; `register_tile` chooses how many results stay in registers.
- `elementwise`: stages without a reduction; `loop_partitioning` splits loops where a condition changes, and marks the
  conditions of tails so that the build compiles tails apart.
- `ragged_reductions`: a rewrite that vectorises reductions whose extent no vector divides.
- `transposes`: transposes of 32-bit elements, written as squares of vectors.

Rules share `row_blocks` and `weight_prefetch`, which order and prefetch what a product reads, and `joined_vectors` and `overlapping_tiles`,
which fill the vectors at the end of a row.
"""
