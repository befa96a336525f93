"""Config spaces: the knobs of a workload, their decisions, and configs as points. Nothing here imports TVM.

- `config`: `Config`, a sketch and one decision for each of its knobs.
- `knob`: `Knob`, one dimension; the decisions of a tile are the factorizations of a loop's extent (`factorization`), and of a few
  larger numbers where no good tile divides the extent (`tail_tiles`).
- `config_space`: `ConfigSpace`, all configs of a workload; samples, mutates and crosses them as rows of ints.
- `gpu_tiling`: the resources of a GPU that a config needs, so that only fitting configs are drawn.
"""
